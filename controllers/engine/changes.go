package engine

import (
	"context"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// statusDelay is how long the status of a queue may lag behind. All changes in that time make one write, so a queue costs the API
// server one write each second at most, however much goes through it.
const statusDelay = time.Second

// Changes is a source of requests for a controller that writes the status of queues: one for each queue that the runner reports
// through register, a while after the first report, so that a busy queue does not flood the API server.
func Changes[K any](register func(func(K)), request func(K) reconcile.Request) source.Source {
	return source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		register(func(key K) {
			if ctx.Err() == nil {
				queue.AddAfter(request(key), statusDelay)
			}
		})
		return nil
	})
}
