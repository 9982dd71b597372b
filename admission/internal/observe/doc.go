// Package observe applies observed facts to the model of the Engine.
//
// An Event carries the API object as it was read. The Observer drops an observation that is older than one that it has, or that is about a deleted
// object, and converts the parts of the object that the Engine uses.
package observe
