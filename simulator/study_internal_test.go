package simulator

// IsShared reports whether one simulation gives all answers. It is known before the forecast.
func (st *Study) IsShared() bool { return st.begun != nil }
