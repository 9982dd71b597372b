package dashboard

import "github.com/tranche-dev/tranche/dashboard/internal/pages"

// Limits of a page.
const (
	DefaultLimit = pages.DefaultLimit
	MaxLimit     = pages.MaxLimit
)

// A Window selects a part of a list: at most Limit items, starting at Offset.
type Window = pages.Window

// A Page is a part of a list.
type Page[T any] = pages.Page[T]
