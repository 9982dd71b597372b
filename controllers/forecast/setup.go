// Package forecast predicts when the waiting stages of JobSets start, from the objects in the cache of the manager.
//
// A Predictor simulates one part of the queues after the other (predictor.go): parts do not influence each other. It runs on a goroutine of its own
// and sends no requests. After each piece of work it pauses, so that it uses a bounded share of one processor. What it finds becomes an answer for
// each JobSet (answer.go). A Board passes on the answers that differ from those that are written, at a bounded rate, those that start first before
// the others (board.go). The controller of JobSets writes them, together with the other conditions of a JobSet: it asks the Board for the answer,
// and removes the condition when the stage no longer waits.
package forecast

import (
	"errors"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	"github.com/tranche-dev/tranche/controllers/metrics"
)

const (
	// pause is how many times longer than its work the Predictor pauses: it uses at most a twentieth of a processor.
	pause = 19
	// maxWork is how long the starts in one part may be simulated.
	maxWork = 10 * time.Second
)

// A Config configures a Predictor.
type Config struct {
	// Cache reads objects from the cache.
	Cache cache.Cache
	// Configuration is that of the manager, with its defaults.
	Configuration *configapi.Configuration
	// Metrics counts predictions.
	Metrics *metrics.Metrics
}

func (c *Config) validate() error {
	if c.Cache == nil || c.Configuration == nil || c.Metrics == nil {
		return errors.New("forecast.Config: Cache, Configuration and Metrics are required")
	}
	return nil
}

// SetupWithManager adds a Predictor to the manager, and returns the Board that has its answers. The Predictor runs where this process leads, once the
// caches are filled.
func SetupWithManager(mgr ctrl.Manager, config Config) (*Board, error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	settings := &config.Configuration.ExpectedStart
	board := newBoard(config.Cache, settings.Interval.Duration, int(*settings.WritesPerSecond), config.Metrics)
	p := &Predictor{
		config: config, board: board, interval: settings.Interval.Duration, predicted: map[string]time.Time{},
		limits: Limits{Horizon: settings.Horizon.Duration, First: int(*settings.First), Workloads: int(*settings.MaxWorkloads), Work: maxWork},
	}
	return board, errors.Join(mgr.Add(p), mgr.Add(board))
}
