package shadow

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tranche-dev/tranche/controllers/metrics"
	"github.com/tranche-dev/tranche/shadow"
	"github.com/tranche-dev/tranche/simulator/replay"
)

const (
	headerTimeout = 10 * time.Second
	stopTimeout   = 2 * time.Second
)

// serveMetrics serves gauges until the context is done. It returns when the port is open. A later error is the cause with which it calls stop.
func serveMetrics(ctx context.Context, address string, gauges *metrics.Shadow, stop context.CancelCauseFunc) error {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("serve metrics: %w; choose another --metrics-bind-address", err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(gauges.Collectors()...)
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	server := &http.Server{Handler: mux, ReadHeaderTimeout: headerTimeout}
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			stop(fmt.Errorf("serve metrics: %w", err))
		}
	}()
	context.AfterFunc(ctx, func() {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		_ = server.Shutdown(ending) // the program ends
	})
	return nil
}

// valuesOf returns the values of the gauges.
func valuesOf(r *shadow.Report) *metrics.ShadowReport {
	values := &metrics.ShadowReport{
		Resources: map[string]metrics.ShadowResource{},
		JobSets: map[string]float64{
			"pending": float64(r.JobSets.Pending), "running": float64(r.JobSets.Running), "finished": float64(r.JobSets.Finished),
		},
		Starts:     map[string]float64{"earlier": float64(r.Starts.Earlier + r.Starts.OnlyStaged), "later": float64(r.Starts.Later + r.Starts.OnlyWhole)},
		StartError: map[string]float64{"median": r.Error.MedianSeconds, "p95": r.Error.P95Seconds, "max": r.Error.MaxSeconds},
		Gain:       r.Starts.EarlierSeconds - r.Starts.LaterSeconds, Unsafe: float64(len(r.Unsafe)), Reported: float64(r.To.Unix()),
	}
	for i := range r.Resources {
		x := &r.Resources[i]
		one := metrics.ShadowResource{Held: x.Held, Idle: map[string]float64{}, Replayed: map[string]float64{
			string(replay.Whole): x.HeldWhole, string(replay.Staged): x.HeldStaged,
		}}
		for why, seconds := range x.Idle {
			one.Idle[string(why)] = seconds
		}
		values.Resources[string(x.Name)] = one
	}
	return values
}
