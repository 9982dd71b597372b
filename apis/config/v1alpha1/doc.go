// Package v1alpha1 holds the configuration file of the manager: its type, its defaults, its validation, and the function that
// reads it.
//
// +kubebuilder:object:generate=true
// +groupName=config.tranche.dev
package v1alpha1
