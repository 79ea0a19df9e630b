// Package testclock has the clock of a Coracle control plane in the form of k8s.io/utils/clock, to inject into an operator under test.
//
//	func TestSomething(t *testing.T) {
//		config := restconfig.Start(t, "--clock=manual")
//		clock := testclock.New(t, config)
//		// ... start the operator with config and clock ...
//		clock.Advance(30 * 24 * time.Hour)
//	}
//
// An advance stops at each timer of the operator, and goes on when the operator has written nothing for a time. Tickers do not stop it: a
// ticker fires once at each stop after a tick is due, as for a receiver that is slower than its ticks.
package testclock

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sort"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
)

const (
	clockPath = "/coracle/v1alpha1/clock"
	// requestTimeout bounds all requests but an advance.
	requestTimeout = 10 * time.Second
	// maxAnswer bounds an answer that is read.
	maxAnswer = 1 << 20
	// maxSpare bounds the timers on the server that are kept for others.
	maxSpare = 100
)

// Clock is the clock of a control plane. If that is the machine's, so is this one.
type Clock struct {
	t      testing.TB
	client *http.Client
	url    string
	ctx    context.Context
	// QuietFor is the time without a write after which Advance takes the operator for done at a stop; 50 ms if it is zero.
	QuietFor time.Duration

	mutex sync.Mutex
	// moved is notified when the clock has come to another time, and what is due then was fired.
	moved *sync.Cond
	// now is the time that the clock has come to, at the machine's time since if it runs by itself.
	now     time.Time
	since   time.Time
	running bool
	// fired is the time up to which timers have fired.
	fired   time.Time
	waiting map[*waiter]struct{}
	// spare has the timers on the server that were stopped here, by their times in nanoseconds. A work queue stops its timer and
	// starts another one for the same time whenever it wakes up; in between no advance may pass that time.
	spare map[int64]string
	// gone is whether the stream has ended.
	gone bool
}

var (
	_ clock.WithTicker           = &Clock{}
	_ clock.WithDelayedExecution = &Clock{}
)

// waiter is a timer or a ticker.
type waiter struct {
	clock *Clock
	at    time.Time
	// period is that of a ticker.
	period time.Duration
	fired  chan time.Time
	call   func()
	// id is the name of the timer on the server; it is empty for a ticker, and for the machine's timer.
	id      string
	machine *time.Timer
}

// New connects to the control plane that a configuration leads to. The test fails if that is not possible, and the connection ends with it.
func New(t testing.TB, config *rest.Config) *Clock {
	t.Helper()
	config = rest.CopyConfig(config)
	// It would end the stream of the time; other requests have bounds of their own.
	config.Timeout = 0
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	server, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	c := &Clock{t: t, client: client, url: server.JoinPath(clockPath).String(), ctx: ctx, waiting: map[*waiter]struct{}{}, spare: map[int64]string{}}
	c.moved = sync.NewCond(&c.mutex)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+"?watch=1", nil)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	response, err := client.Do(request)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	if response.StatusCode != http.StatusOK {
		defer response.Body.Close()
		text, _ := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
		cancel()
		t.Fatalf("GET %s: %s: %s", clockPath, response.Status, text)
	}
	lines := bufio.NewScanner(response.Body)
	// The first line is the time of now.
	if !lines.Scan() || !c.read(lines.Bytes()) {
		cancel()
		t.Fatalf("GET %s: no time: %v", clockPath, lines.Err())
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer response.Body.Close()
		for lines.Scan() && c.read(lines.Bytes()) {
		}
		c.mutex.Lock()
		c.gone = true
		c.mutex.Unlock()
		c.moved.Broadcast()
		if ctx.Err() == nil {
			t.Errorf("the clock of the control plane is gone: %v", lines.Err())
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		c.mutex.Lock()
		defer c.mutex.Unlock()
		for w := range c.waiting {
			if w.machine != nil {
				w.machine.Stop()
			}
		}
	})
	return c
}

// read takes a line of the stream, and fires what is due.
func (c *Clock) read(line []byte) bool {
	var event struct {
		Mode string    `json:"mode"`
		Now  time.Time `json:"now"`
	}
	if err := json.Unmarshal(line, &event); err != nil {
		return false
	}
	c.mutex.Lock()
	c.now, c.since = event.Now, time.Now()
	if event.Mode == "real" && !c.running {
		c.running = true
		for w := range c.waiting {
			w.wait()
		}
	}
	for at := range c.spare {
		if at <= c.now.UnixNano() {
			delete(c.spare, at)
		}
	}
	var due []*waiter
	for w := range c.waiting {
		if !w.at.After(c.now) {
			due = append(due, w)
		}
	}
	c.mutex.Unlock()
	sort.Slice(due, func(i, j int) bool { return due[i].at.Before(due[j].at) })
	for _, w := range due {
		w.fire()
	}
	c.mutex.Lock()
	c.fired = event.Now
	c.mutex.Unlock()
	c.moved.Broadcast()
	return true
}

// Advance moves the clock on, from timer to timer, and waits at each until the control plane has settled. It returns the new time. The test
// ends if that is not possible.
func (c *Clock) Advance(by time.Duration) time.Time {
	c.t.Helper()
	c.mutex.Lock()
	spare := c.spare
	c.spare = map[int64]string{}
	c.mutex.Unlock()
	for _, id := range spare {
		c.remove(id)
	}
	body := map[string]any{"advance": by.String()}
	if c.QuietFor != 0 {
		body["quietFor"] = c.QuietFor.String()
	}
	var moved struct {
		Now time.Time `json:"now"`
	}
	if err := c.send(c.ctx, http.MethodPost, c.url, body, &moved); err != nil {
		c.t.Fatal(err)
	}
	// The stream may have it later than this request.
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for c.fired.Before(moved.Now) && !c.gone {
		c.moved.Wait()
	}
	return moved.Now
}

// Now returns the time of the control plane.
func (c *Clock) Now() time.Time {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.time()
}

func (c *Clock) time() time.Time {
	if c.running {
		return c.now.Add(time.Since(c.since))
	}
	return c.now
}

// Since returns the time that has passed since another.
func (c *Clock) Since(from time.Time) time.Duration {
	return c.Now().Sub(from)
}

// After returns the channel of a new timer.
func (c *Clock) After(d time.Duration) <-chan time.Time {
	return c.NewTimer(d).C()
}

// NewTimer returns a timer at which an advance stops.
func (c *Clock) NewTimer(d time.Duration) clock.Timer {
	w := &waiter{clock: c, fired: make(chan time.Time, 1)}
	w.start(d)
	return w
}

// AfterFunc calls a function in a goroutine of its own when a timer fires.
func (c *Clock) AfterFunc(d time.Duration, call func()) clock.Timer {
	w := &waiter{clock: c, fired: make(chan time.Time, 1), call: call}
	w.start(d)
	return w
}

// Sleep waits until the clock has come that far.
func (c *Clock) Sleep(d time.Duration) {
	select {
	case <-c.After(d):
	case <-c.ctx.Done():
	}
}

// Tick returns the channel of a new ticker.
func (c *Clock) Tick(d time.Duration) <-chan time.Time {
	return c.NewTicker(d).C()
}

// NewTicker returns a ticker, which fires once at each stop of the clock after a tick is due.
func (c *Clock) NewTicker(d time.Duration) clock.Ticker {
	if d <= 0 {
		panic("testclock: the period of a ticker must be positive")
	}
	w := &waiter{clock: c, period: d, fired: make(chan time.Time, 1)}
	w.start(d)
	return ticker{w}
}

// ticker is a waiter in the form of a clock.Ticker, whose Stop returns nothing.
type ticker struct{ *waiter }

func (t ticker) Stop() { t.waiter.Stop() }

// C returns the channel that the time is sent to.
func (w *waiter) C() <-chan time.Time { return w.fired }

func (w *waiter) start(d time.Duration) {
	c := w.clock
	c.mutex.Lock()
	w.at = c.time().Add(d)
	if d <= 0 {
		c.mutex.Unlock()
		w.send()
		return
	}
	c.waiting[w] = struct{}{}
	if c.running {
		w.wait()
	}
	at := w.at
	if id, isThere := c.spare[at.UnixNano()]; isThere && w.period == 0 {
		delete(c.spare, at.UnixNano())
		w.id = id
	}
	isOfServer := !c.running && w.period == 0 && w.id == ""
	c.mutex.Unlock()
	if !isOfServer {
		return
	}
	// Before this returns: the next advance has to stop at it.
	var set struct {
		ID string `json:"id"`
	}
	ctx, cancel := context.WithTimeout(c.ctx, requestTimeout)
	defer cancel()
	body := map[string]any{"at": at.Format(time.RFC3339Nano), "name": "testclock"}
	err := c.send(ctx, http.MethodPost, c.url+"/timers", body, &set)
	c.mutex.Lock()
	_, isWaiting := c.waiting[w]
	if isWaiting {
		w.id = set.ID
	}
	c.mutex.Unlock()
	// A clock that runs by itself keeps no timers; the stream says so, and has the machine's time fire this one.
	var refused statusError
	isRunning := errors.As(err, &refused) && refused.code == http.StatusConflict
	if err != nil && !isRunning && c.ctx.Err() == nil {
		c.t.Errorf("a timer of the operator is not kept: %v", err)
	}
}

// wait has the machine's time fire it. The clock is locked.
func (w *waiter) wait() {
	w.machine = time.AfterFunc(w.at.Sub(w.clock.time()), w.fire)
}

// fire fires it, if it still waits.
func (w *waiter) fire() {
	c := w.clock
	c.mutex.Lock()
	_, isWaiting := c.waiting[w]
	now := c.time()
	if isWaiting && w.period == 0 {
		delete(c.waiting, w)
		w.id = ""
	}
	if isWaiting && w.period != 0 {
		// Ticks that were missed are dropped.
		missed := now.Sub(w.at) / w.period
		w.at = w.at.Add((max(missed, 0) + 1) * w.period)
		if c.running {
			w.wait()
		}
	}
	c.mutex.Unlock()
	if isWaiting {
		w.send()
	}
}

func (w *waiter) send() {
	if w.call != nil {
		go w.call()
		return
	}
	select {
	case w.fired <- w.clock.Now():
	default:
	}
}

// Stop ends it. It returns whether it was still to fire.
func (w *waiter) Stop() bool {
	c := w.clock
	c.mutex.Lock()
	_, isWaiting := c.waiting[w]
	delete(c.waiting, w)
	id := w.id
	w.id = ""
	if w.machine != nil {
		w.machine.Stop()
	}
	if _, isThere := c.spare[w.at.UnixNano()]; id != "" && !isThere && len(c.spare) < maxSpare {
		c.spare[w.at.UnixNano()] = id
		id = ""
	}
	c.mutex.Unlock()
	if id != "" {
		c.remove(id)
	}
	return isWaiting
}

// remove removes a timer on the server. One that has fired meanwhile is gone.
func (c *Clock) remove(id string) {
	ctx, cancel := context.WithTimeout(c.ctx, requestTimeout)
	defer cancel()
	_ = c.send(ctx, http.MethodDelete, c.url+"/timers/"+id, nil, nil)
}

// Reset starts it anew. It returns whether it was still to fire.
func (w *waiter) Reset(d time.Duration) bool {
	isWaiting := w.Stop()
	w.start(d)
	return isWaiting
}

// statusError is a response that is no success.
type statusError struct {
	code int
	text string
}

func (e statusError) Error() string { return e.text }

func (c *Clock) send(ctx context.Context, method, url string, body, answer any) error {
	var text io.Reader
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return err
		}
		text = bytes.NewReader(encoded)
	}
	request, err := http.NewRequestWithContext(ctx, method, url, text)
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := c.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	got, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return err
	}
	if response.StatusCode >= 300 {
		return statusError{response.StatusCode, fmt.Sprintf("%s %s: %s: %s", method, request.URL.Path, response.Status, got)}
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(got, answer)
}
