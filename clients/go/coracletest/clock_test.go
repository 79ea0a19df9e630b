package coracletest

import (
	"strings"
	"testing"
	"time"
)

func TestSettleWaitsForClients(t *testing.T) {
	controlPlane := Start(t, "--nodes=0")
	controlPlane.Settle(t, QuietFor(time.Millisecond), SeenUserAgents("kube-controller-manager/*"))
	err := controlPlane.TrySettle(WithTimeout(200*time.Millisecond), SeenUserAgents("no-such-operator/*"))
	if err == nil || !strings.Contains(err.Error(), "no-such-operator") {
		t.Errorf("%v", err)
	}
}

func TestTheClockIsMovedOn(t *testing.T) {
	controlPlane := Start(t, "--clock=manual")
	controlPlane.Settle(t)
	clock := controlPlane.Clock()
	began, err := clock.Now()
	if err != nil {
		t.Fatal(err)
	}
	later, err := clock.Advance(24 * time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if later.Sub(began) != 24*time.Hour {
		t.Errorf("from %v to %v", began, later)
	}
	if next, err := clock.Next(2); err != nil || !next.After(later) {
		t.Errorf("%v %v", next, err)
	}
	if _, err := clock.Set(began); err == nil || !strings.Contains(err.Error(), "does not go back") {
		t.Errorf("set: %v", err)
	}
	if _, err := clock.Advance(-time.Second); err == nil || !strings.Contains(err.Error(), "negative") {
		t.Errorf("advance: %v", err)
	}
	if _, err := clock.Resume(); err != nil {
		t.Error(err)
	}
	if _, err := clock.Advance(time.Second); err == nil || !strings.Contains(err.Error(), "--clock=manual") {
		t.Errorf("advance: %v", err)
	}
}
