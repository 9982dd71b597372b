package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// forecastVectors are the metrics of predicted starts. Only the leader predicts, so only the leader reports them.
type forecastVectors struct {
	predictionRounds *prometheus.HistogramVec
	predictions      *prometheus.CounterVec
	publications     *prometheus.CounterVec
}

func newForecastVectors(all *catalogue) forecastVectors {
	return forecastVectors{
		predictionRounds: all.histogram("tranche_start_prediction_round_seconds",
			"Processor time of one round of predictions of when waiting stages start: one reading of the cache, and the simulations based on it. Pauses do not count.",
			prometheus.ExponentialBuckets(0.001, 4, 9), []string{"replica_role"}),
		predictions: all.counter("tranche_start_predictions_total",
			"Number of predictions of when a waiting stage starts, by certainty: By, About, Unknown or NotPredicted.", []string{"certainty", "replica_role"}),
		publications: all.counter("tranche_start_prediction_writes_total",
			"Number of expected starts that differed enough from the written one to be written to a JobSet.", []string{"replica_role"}),
	}
}

// StartsPredicted records how long one round of predictions has worked.
func (m *Metrics) StartsPredicted(worked time.Duration) {
	observe(m.predictionRounds, worked, m.replica.role())
}

// StartPredicted counts one prediction.
func (m *Metrics) StartPredicted(certainty string) {
	m.predictions.WithLabelValues(certainty, m.replica.role()).Inc()
}

// ExpectedStartPublished counts one expected start that is written.
func (m *Metrics) ExpectedStartPublished() { m.publications.WithLabelValues(m.replica.role()).Inc() }
