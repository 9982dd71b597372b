// Package demand converts pod sets to the amounts that they are charged.
//
// A Shape is the demand of pod sets. The Catalog has one Shape for all stages with equal pod sets, and the objects of the cluster that determine,
// besides its template, what a pod is charged.
package demand
