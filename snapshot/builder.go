package snapshot

import configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"

// A Builder keeps the objects that it is given, reduced to the fields that decide admission.
type Builder struct {
	snapshot Snapshot
	kind     *Kind
}

// Configure takes the configuration of the manager.
func (b *Builder) Configure(config *configapi.Configuration) error {
	b.snapshot.Configuration = config
	return nil
}

// Begin starts a kind. It drops the objects of the kind.
func (b *Builder) Begin(kind *Kind) error {
	b.kind = kind
	kind.clear(&b.snapshot)
	return nil
}

// Add takes an object of the kind.
func (b *Builder) Add(object Object) error {
	b.kind.add(&b.snapshot, b.kind.reduce(object))
	return nil
}

// Close takes the fields that describe the snapshot.
func (b *Builder) Close(about *Snapshot) error {
	s := &b.snapshot
	s.TakenAt, s.Version, s.IsAnonymized, s.OnlyNamespaces, s.Gaps = about.TakenAt, about.Version, about.IsAnonymized, about.OnlyNamespaces, about.Gaps
	for _, kind := range Kinds() {
		kind.sort(s)
	}
	return nil
}

// Snapshot returns the snapshot after Close.
func (b *Builder) Snapshot() *Snapshot { return &b.snapshot }
