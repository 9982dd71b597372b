// Package metrics holds every Prometheus metric that Tranche adds to those of controller-runtime.
package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var (
	admissions = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tranche_admissions_total",
		Help: "Number of stages admitted, by ClusterQueue.",
	}, []string{"cluster_queue"})

	writeFailures = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tranche_decision_write_failures_total",
		Help: "Number of decisions that could not be written at the first try, by kind of decision.",
	}, []string{"decision"})

	releases = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "tranche_released_jobs_total",
		Help: "Number of child Jobs released.",
	})
)

// Register adds the metrics to the registry that the manager serves. Call it once.
func Register() error {
	for _, collector := range []prometheus.Collector{admissions, writeFailures, releases} {
		if err := metrics.Registry.Register(collector); err != nil {
			return err
		}
	}
	return nil
}

// Admitted counts one admitted stage.
func Admitted(clusterQueue string) { admissions.WithLabelValues(clusterQueue).Inc() }

// WriteFailed counts one decision that could not be written.
func WriteFailed(decision string) { writeFailures.WithLabelValues(decision).Inc() }

// Released counts child Jobs that were released.
func Released(jobs int) { releases.Add(float64(jobs)) }
