package coracletest

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

const (
	settlePath = "/coracle/v1alpha1/settle"
	// clockTimeout bounds an advance: a year of a busy control plane is much work.
	clockTimeout = 10 * time.Minute
)

// Settle waits until nothing is left to happen at this moment of the clock: every change is followed to the end of the reconciliations that
// it caused, every watch has been delivered, no request is under way, and nothing was written for 50 ms. The test ends if that takes more
// than 10 s; its log has what was under way.
func (c *ControlPlane) Settle(t testing.TB) {
	t.Helper()
	if _, err := c.call(http.MethodPost, settlePath, []byte("{}")); err != nil {
		t.Fatal(err)
	}
}

// Clock returns the clock of the control plane, which can be moved on if it was started with the flag "--clock=manual".
func (c *ControlPlane) Clock() *Clock {
	return &Clock{controlPlane: c}
}

// Clock is the clock of a control plane. Its methods return an error if the clock is real, or the control plane does not settle.
type Clock struct {
	controlPlane *ControlPlane
}

// Now returns the time of the control plane.
func (k *Clock) Now() (time.Time, error) {
	return k.run("--limit", "0")
}

// Advance moves the clock on, from timer to timer, and waits at each until the control plane has settled. It returns the new time.
func (k *Clock) Advance(by time.Duration) (time.Time, error) {
	return k.run("advance", "--", by.String())
}

// Next moves the clock to the times at which the next timers fire, so many times. It returns the new time.
func (k *Clock) Next(count int) (time.Time, error) {
	return k.run("next", "--", strconv.Itoa(count))
}

// Set moves the clock to a time that is not earlier than its own. It returns the new time.
func (k *Clock) Set(to time.Time) (time.Time, error) {
	return k.run("set", to.Format(time.RFC3339Nano))
}

// Resume lets the clock run by itself, from its time on, which it returns.
func (k *Clock) Resume() (time.Time, error) {
	return k.run("resume")
}

func (k *Clock) run(arguments ...string) (time.Time, error) {
	output, err := k.controlPlane.run(clockTimeout, append([]string{"clock"}, arguments...)...)
	if err != nil {
		return time.Time{}, err
	}
	now, _, _ := strings.Cut(output, " ")
	return time.Parse(time.RFC3339Nano, now)
}
