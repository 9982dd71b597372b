package server

import (
	"crypto/subtle"
	"errors"
	"net/http"
	"slices"
)

// tokenParameter has the token in the URL that is printed.
const tokenParameter = "token"

// isKnown reports whether a request has the token: other users of the machine can connect to its loopback addresses, too. A browser gets the token
// from the printed URL and sends it as a cookie from then on. isKnown answers all other requests.
func (s *server) isKnown(w http.ResponseWriter, r *http.Request) bool {
	query := r.URL.Query()
	// The token does not stay in the address of the page.
	hasToken := func(c *http.Cookie) bool { return s.isToken(c.Value) } // another one of the name may come first
	if slices.ContainsFunc(r.CookiesNamed(s.Cookie), hasToken) && !query.Has(tokenParameter) {
		return true
	}
	if !s.isToken(query.Get(tokenParameter)) {
		writeError(w, http.StatusUnauthorized, errors.New("open the URL that tranche dashboard printed, with its token"))
		return false
	}
	//nolint:gosec // Secure would keep the cookie from a server on loopback, which has no TLS
	http.SetCookie(w, &http.Cookie{Name: s.Cookie, Value: s.Token, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode})
	// The view is in the fragment, which browsers keep.
	http.Redirect(w, r, "/", http.StatusSeeOther)
	return false
}

func (s *server) isToken(text string) bool {
	return subtle.ConstantTimeCompare([]byte(text), []byte(s.Token)) == 1
}
