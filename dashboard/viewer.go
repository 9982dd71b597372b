package dashboard

// ReaderRole is the ClusterRole that grants the right to read all that is shown.
const ReaderRole = "tranche-dashboard-viewer"

// A Viewer is what the reader of an answer may see. The zero Viewer sees all objects.
type Viewer struct {
	// Namespace reports whether the reader may see the objects of a namespace. Nil allows all.
	Namespace func(name string) bool
	// ClusterQueue reports whether the reader may see a ClusterQueue. Nil allows all.
	ClusterQueue func(name string) bool
	// JobSets reports whether the reader may see the JobSets of a namespace that Namespace allows. Nil allows all.
	JobSets func(namespace string) bool
}

func (v *Viewer) seesNamespace(name string) bool { return v.Namespace == nil || v.Namespace(name) }

func (v *Viewer) seesJobSets(namespace string) bool {
	return v.seesNamespace(namespace) && (v.JobSets == nil || v.JobSets(namespace))
}

// seesAllJobSets reports whether no JobSet is hidden.
func (v *Viewer) seesAllJobSets() bool { return v.Namespace == nil && v.JobSets == nil }

// SeesJobSets reports whether the reader may see the JobSets of a namespace.
func (v *Viewer) SeesJobSets(namespace string) bool { return v.seesJobSets(namespace) }

func (v *Viewer) seesClusterQueue(name string) bool {
	return v.ClusterQueue == nil || v.ClusterQueue(name)
}
