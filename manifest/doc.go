// Package manifest reads API objects from text, as users write them and kubectl, Helm and kustomize print them: YAML documents, JSON objects that
// follow each other, and lists of objects.
//
// Read splits a file and returns its objects in JSON, with their kinds and names. It goes on after a document that is no YAML. An Object knows its
// place: Place returns the line of a field, Duplicates the keys that are written twice, and Decode the fields that a Go type does not have.
package manifest
