package fairshare

// Borrows reports whether the subtree uses more than its own quota of any resource.
func (s Share) Borrows() bool { return s.borrows }
