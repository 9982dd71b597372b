// Package settings has the defaults of an Engine, for what objects leave open.
package settings
