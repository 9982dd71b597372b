package schedulergang

// An API is the scheduler that places gangs, and the API of its gang objects.
type API struct {
	// Name of the scheduler in the configuration of the manager.
	Name string
	// IsConfigured is false if no scheduler places gangs.
	IsConfigured bool
	// IsServed is true if the API server serves the objects of gangs.
	IsServed bool
	// Version of the API that is served, such as scheduling.k8s.io/v1alpha2, or "" if none is.
	Version string
	// WantedVersion is the version that the API server should serve.
	WantedVersion string
}
