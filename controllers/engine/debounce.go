package engine

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// The status of a queue is written when it has not changed for a while. If changes do not stop, it is written after a time that doubles from write
// to write between these limits, which limits the load on the API server. The while is quietShare of that time, and at least statusDelay: a queue that
// changes every few seconds does not stop either.
const (
	statusDelay    = time.Second
	maxStatusDelay = 30 * time.Second
	quietShare     = 6
)

// Changes is a source of requests for the one controller that writes the status of a kind: one request for each object whose status may
// differ, a while after the runner has reported it.
func Changes(runner *Runner, kind Kind) source.Source {
	return source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		d := &debouncer{beats: map[types.NamespacedName]*beat{}, do: func(key types.NamespacedName) {
			if ctx.Err() == nil {
				queue.Add(reconcile.Request{NamespacedName: key})
			}
		}}
		runner.onChange(kind, d.report)
		return nil
	})
}

// A debouncer calls do for each key that is reported, once there was no report for a delay, and less often for keys that are reported repeatedly.
type debouncer struct {
	do func(types.NamespacedName)

	mu    sync.Mutex
	beats map[types.NamespacedName]*beat
}

// A beat is what the debouncer remembers of a key from its first report on, until there was none for one window.
type beat struct {
	// window is the longest time between two calls while there are reports, and age the time since the last call.
	window, age time.Duration
	// quiet is how long there was no report, counted from the tick after the last one, and isDue whether there was one since the last call.
	quiet time.Duration
	isDue bool
}

func (d *debouncer) report(key types.NamespacedName) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if b := d.beats[key]; b != nil {
		b.quiet, b.isDue = -statusDelay, true
		return
	}
	d.beats[key] = &beat{window: statusDelay, quiet: -statusDelay, isDue: true}
	time.AfterFunc(statusDelay, func() { d.tick(key) })
}

// tick is called for each key once in a delay.
func (d *debouncer) tick(key types.NamespacedName) {
	d.mu.Lock()
	defer d.mu.Unlock()
	b := d.beats[key]
	b.age += statusDelay
	b.quiet += statusDelay
	isQuiet, isOver := b.quiet >= max(b.window/quietShare, statusDelay), b.age >= b.window
	switch {
	case b.isDue && (isQuiet || isOver):
		b.window, b.age, b.isDue = min(2*b.window, maxStatusDelay), 0, false
		d.do(key)
	case !b.isDue && isOver:
		delete(d.beats, key)
		return
	}
	time.AfterFunc(statusDelay, func() { d.tick(key) })
}
