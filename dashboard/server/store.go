package server

import (
	"sync"

	"github.com/tranche-dev/tranche/dashboard"
)

// A Store guards a Model: watches change it while requests read it.
type Store struct {
	mu    sync.Mutex
	model *dashboard.Model
}

// NewStore returns a Store with an empty Model.
func NewStore() *Store { return &Store{model: dashboard.New()} }

// Use calls f, which may read and change the Model, and must not keep it.
func (s *Store) Use(f func(m *dashboard.Model)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s.model)
}

// Version returns another number after each change of the Model.
func (s *Store) Version() (version uint64) {
	s.Use(func(m *dashboard.Model) { version = m.Version() })
	return version
}
