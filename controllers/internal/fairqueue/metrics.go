package fairqueue

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// collectors are the metrics of work queues that controller-runtime has registered. The provider of metrics that client-go asks is another one: the
// libraries of aggregated API servers set it first.
type collectors struct {
	depth, unfinished, longest *prometheus.GaugeVec
	adds, retries              *prometheus.CounterVec
	latency, duration          *prometheus.HistogramVec
}

var _ workqueue.MetricsProvider = (*collectors)(nil)

// newCollectors finds the metrics by their names, texts and labels. It panics if they differ from those of controller-runtime: then a process could not
// serve both.
func newCollectors() *collectors {
	of := []string{"name", "controller"}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return registered(prometheus.NewGaugeVec(prometheus.GaugeOpts{Subsystem: metrics.WorkQueueSubsystem, Name: name, Help: help}, append(of, labels...)))
	}
	counter := func(name, help string) *prometheus.CounterVec {
		return registered(prometheus.NewCounterVec(prometheus.CounterOpts{Subsystem: metrics.WorkQueueSubsystem, Name: name, Help: help}, of))
	}
	histogram := func(name, help string) *prometheus.HistogramVec {
		return registered(prometheus.NewHistogramVec(prometheus.HistogramOpts{Subsystem: metrics.WorkQueueSubsystem, Name: name, Help: help}, of))
	}
	return &collectors{
		depth: gauge(metrics.DepthKey, "Current depth of workqueue by workqueue and priority", "priority"),
		unfinished: gauge(metrics.UnfinishedWorkKey, "How many seconds of work has been done that is in progress and hasn't been observed by work_duration. "+
			"Large values indicate stuck threads. One can deduce the number of stuck threads by observing the rate at which this increases."),
		longest:  gauge(metrics.LongestRunningProcessorKey, "How many seconds has the longest running processor for workqueue been running."),
		adds:     counter(metrics.AddsKey, "Total number of adds handled by workqueue"),
		retries:  counter(metrics.RetriesKey, "Total number of items added to the workqueue with a non-zero delay (rate-limited requeues, explicit RequeueAfter or AddAfter calls)"),
		latency:  histogram(metrics.QueueLatencyKey, "How long in seconds an item stays in workqueue before being requested"),
		duration: histogram(metrics.WorkDurationKey, "How long in seconds processing an item from workqueue takes."),
	}
}

// registered returns the collector that is registered in place of an equal one.
func registered[C prometheus.Collector](c C) C {
	err := metrics.Registry.Register(c)
	if existing, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		if same, isSame := existing.ExistingCollector.(C); isSame {
			return same
		}
	}
	if err != nil {
		panic(err)
	}
	return c
}

// The methods return the metrics of the queue with a name, which is that of its controller.

func (c *collectors) NewDepthMetric(name string) workqueue.GaugeMetric {
	return c.depth.WithLabelValues(name, name, "")
}

func (c *collectors) NewAddsMetric(name string) workqueue.CounterMetric {
	return c.adds.WithLabelValues(name, name)
}

func (c *collectors) NewLatencyMetric(name string) workqueue.HistogramMetric {
	return c.latency.WithLabelValues(name, name)
}

func (c *collectors) NewWorkDurationMetric(name string) workqueue.HistogramMetric {
	return c.duration.WithLabelValues(name, name)
}

func (c *collectors) NewUnfinishedWorkSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return c.unfinished.WithLabelValues(name, name)
}

func (c *collectors) NewLongestRunningProcessorSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return c.longest.WithLabelValues(name, name)
}

func (c *collectors) NewRetriesMetric(name string) workqueue.CounterMetric {
	return c.retries.WithLabelValues(name, name)
}
