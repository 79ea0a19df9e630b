package coracletest

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

const (
	settlePath = "/coracle/v1alpha1/settle"
	// settleTimeout is the longest wait by default; settleMargin is what a request takes beyond it.
	settleTimeout = 10 * time.Second
	settleMargin  = 10 * time.Second
	// clockTimeout bounds an advance: a year of a busy control plane is much work.
	clockTimeout = 10 * time.Minute
)

// A SettleOption changes what Settle waits for.
type SettleOption func(*settleRequest)

type settleRequest struct {
	QuietFor   string   `json:"quietFor,omitempty"`
	Timeout    string   `json:"timeout,omitempty"`
	UserAgents []string `json:"userAgents,omitempty"`
	timeout    time.Duration
}

// WithTimeout has Settle wait for so long, an hour at most, instead of 10 s.
func WithTimeout(timeout time.Duration) SettleOption {
	return func(request *settleRequest) { request.timeout, request.Timeout = timeout, timeout.String() }
}

// QuietFor has Settle wait until nothing was written for so long, instead of 50 ms.
func QuietFor(quiet time.Duration) SettleOption {
	return func(request *settleRequest) { request.QuietFor = quiet.String() }
}

// SeenUserAgents has Settle wait for clients, such as an operator that is still starting: one of each of these user agents must have made a
// request before. "*" in a pattern is any characters.
func SeenUserAgents(patterns ...string) SettleOption {
	return func(request *settleRequest) { request.UserAgents = append(request.UserAgents, patterns...) }
}

// Settle waits until nothing is left to happen at this moment of the clock: every change is followed to the end of the reconciliations that
// it caused, every watch has been delivered, no request is under way, and nothing was written for 50 ms. The test ends if that takes more
// than 10 s; its log has what was under way.
func (c *ControlPlane) Settle(t testing.TB, options ...SettleOption) {
	t.Helper()
	if err := c.TrySettle(options...); err != nil {
		t.Fatal(err)
	}
}

// TrySettle waits as Settle does. The error has what is under way if that takes too long.
func (c *ControlPlane) TrySettle(options ...SettleOption) error {
	request := settleRequest{timeout: settleTimeout}
	for _, option := range options {
		option(&request)
	}
	document, err := json.Marshal(request)
	if err != nil {
		return err
	}
	_, err = c.call(request.timeout+settleMargin, http.MethodPost, settlePath, document)
	return err
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
