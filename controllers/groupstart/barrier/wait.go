package barrier

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	// lookEvery is how often the files are read.
	lookEvery = time.Second
	// grace is how much longer than the requested wait a pod waits for the answer.
	grace = 10 * time.Second
	// lastWord is how long the last request may take.
	lastWord = 2 * time.Second
	// maxAnswer is larger than any answer.
	maxAnswer = 4 << 10
)

// pauses are the times after which a pod asks again after failed requests: at first half a second to a second, later up to 15 seconds. They
// are random, so that the pods of a group do not all ask at the same time.
func pauses() wait.Backoff {
	return wait.Backoff{Duration: time.Second / 2, Factor: 2, Jitter: 1, Steps: math.MaxInt32, Cap: 15 * time.Second / 2}
}

// A Waiter is a pod that waits for the other pods of its group.
type Waiter struct {
	// Dir is where the ConfigMap of the group is mounted.
	Dir string
	// Signal is what the pod waits for.
	Signal string
	// Timeout is how long the pod waits.
	Timeout time.Duration
	// OnError is called with the error that keeps the pod from asking the manager, each time that the error changes. It may be nil.
	OnError func(error)
}

// A TimeoutError reports that the other pods have not started in time.
type TimeoutError struct {
	// Timeout is how long the pod has waited.
	Timeout time.Duration
	// Started is how many of the Pods of the group had started. Pods is 0 if that is not known.
	Started, Pods int
	// Unknown says why it is not known how many had started, or is nil.
	Unknown error
}

// Error returns a message with the number of pods that had started.
func (e *TimeoutError) Error() string {
	switch {
	case e.Unknown == nil:
		return fmt.Sprintf("timed out after %s: %d of %d pods of the group had started", e.Timeout, e.Started, e.Pods)
	case e.Pods > 0:
		return fmt.Sprintf("timed out after %s: not all of the %d pods of the group had started; their number is unknown: %v", e.Timeout, e.Pods, e.Unknown)
	default:
		return fmt.Sprintf("timed out after %s: not all pods of the group had started; their number is unknown: %v", e.Timeout, e.Unknown)
	}
}

// Unwrap returns why it is not known how many had started.
func (e *TimeoutError) Unwrap() error { return e.Unknown }

// Wait returns when the pod may start, according to the file or to the manager, whichever is first. After the timeout it returns a
// TimeoutError, and when ctx ends the cause of that.
func (w *Waiter) Wait(ctx context.Context) error {
	if w.Signal == "" || w.Timeout <= 0 {
		return errors.New("barrier.Waiter: Signal and Timeout are required")
	}
	waiting, cancel := context.WithTimeout(ctx, w.Timeout)
	defer cancel()
	// Both goroutines may report the release; the channel has room for both, so that neither blocks.
	released := make(chan struct{}, 2)
	go w.look(waiting, released)
	go w.keepAsking(waiting, released)
	select {
	case <-released:
		return nil
	case <-waiting.Done():
	}
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	return w.giveUp(ctx)
}

// giveUp checks once more, and returns a TimeoutError with the number of pods that have started.
func (w *Waiter) giveUp(ctx context.Context) error {
	notice, err := w.read()
	if notice.Releases(w.Signal) {
		return nil
	}
	answer := Answer{}
	if err == nil {
		answer, err = w.ask(ctx, notice, 0, lastWord)
	}
	if answer.Released {
		return nil
	}
	if err != nil {
		return &TimeoutError{Timeout: w.Timeout, Pods: notice.Pods, Unknown: err}
	}
	return &TimeoutError{Timeout: w.Timeout, Started: answer.Started, Pods: answer.Pods}
}

// look waits until the file says that the pod may start.
func (w *Waiter) look(ctx context.Context, released chan<- struct{}) {
	err := wait.PollUntilContextCancel(ctx, lookEvery, true, func(context.Context) (bool, error) {
		notice, err := w.read()
		return err == nil && notice.Releases(w.Signal), nil
	})
	if err == nil {
		released <- struct{}{}
	}
}

// read reads the notice from the files. Any of them may be missing: the volume is optional, and the kubelet fills it later.
func (w *Waiter) read() (Notice, error) {
	var failure error
	notice := ReadNotice(func(key string) string {
		data, err := os.ReadFile(filepath.Join(w.Dir, key)) //nolint:gosec // the user who starts the container chooses the directory
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			failure = fmt.Errorf("read the ConfigMap of the group: %w", err)
		}
		return string(data)
	})
	if failure == nil && notice.Token == "" {
		failure = fmt.Errorf("the ConfigMap of the group is not mounted in %s", w.Dir)
	}
	return notice, failure
}

// keepAsking asks the manager until it says that the pod may start.
func (w *Waiter) keepAsking(ctx context.Context, released chan<- struct{}) {
	said, pause := "", pauses()
	for ctx.Err() == nil {
		answer, err := w.askOnce(ctx)
		switch {
		case err == nil && answer.Released:
			released <- struct{}{}
			return
		case err == nil:
			// The request has already waited for a while.
			said, pause = "", pauses()
			continue
		case ctx.Err() != nil:
			return
		}
		if w.OnError != nil && err.Error() != said {
			said = err.Error()
			w.OnError(err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause.Step()):
		}
	}
}

// askOnce reads the endpoint, which may have changed, and sends one request.
func (w *Waiter) askOnce(ctx context.Context) (Answer, error) {
	notice, err := w.read()
	if err != nil {
		return Answer{}, err
	}
	wait := longestWait
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(deadline))
	}
	return w.ask(ctx, notice, wait, wait+grace)
}

// errNoEndpoint is returned if the administrator has turned the Server off.
var errNoEndpoint = errors.New("groupStart.bindAddress of the manager is 0, so the pod waits until the kubelet updates the mounted ConfigMap")

// ask sends a request that the manager holds for up to wait. Only an answer made with the token of the group counts.
func (w *Waiter) ask(ctx context.Context, notice Notice, wait, timeout time.Duration) (Answer, error) {
	if notice.Endpoint == "" {
		return Answer{}, errNoEndpoint
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	query := url.Values{"signal": {w.Signal}, "wait": {wait.Round(time.Millisecond).String()}, "nonce": {rand.Text()}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, notice.Endpoint+"?"+query.Encode(), http.NoBody)
	if err != nil {
		return Answer{}, fmt.Errorf("ask the manager: %w", err)
	}
	uri := request.URL.RequestURI()
	request.Header.Set("Authorization", scheme+signQuestion(notice.Token, uri))
	response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
	if urlError, ok := errors.AsType[*url.Error](err); ok {
		// The URL has a new nonce each time.
		err = urlError.Err
	}
	if err != nil {
		return Answer{}, fmt.Errorf("ask the manager at %s: %w", notice.Endpoint, err)
	}
	defer response.Body.Close() //nolint:errcheck // it has been read
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return Answer{}, fmt.Errorf("read the response of the manager at %s: %w", notice.Endpoint, err)
	}
	if response.StatusCode != http.StatusOK {
		return Answer{}, fmt.Errorf("the manager at %s responded with status %d: %s", notice.Endpoint, response.StatusCode, strings.TrimSpace(string(body)))
	}
	var answer Answer
	if !isSigned(response.Header.Get(answerHeader), signAnswer(notice.Token, uri, body)) {
		return Answer{}, fmt.Errorf("the response of %s was not signed by the manager: its header %s is wrong", notice.Endpoint, answerHeader)
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return Answer{}, fmt.Errorf("read the response of the manager at %s: %w", notice.Endpoint, err)
	}
	return answer, nil
}
