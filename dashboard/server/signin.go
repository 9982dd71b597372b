package server

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"html/template"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tranche-dev/tranche/dashboard/access"
)

const (
	// sessionCookie keeps the token of a user that has signed in. Browsers accept a name with this prefix only over TLS, and for this host only.
	sessionCookie = "__Host-tranche-dashboard"
	// maxToken is the length of a token for which a cookie has space.
	maxToken = 3800
	// maxForm and formTime limit the request that has the token.
	maxForm  = 16 << 10
	formTime = 10 * time.Second
)

// signInStyle is the style of the sign-in page, which loads no file: there is none that is served to everyone.
const signInStyle = `:root { color-scheme: light dark; }
body { margin: 0; min-height: 100vh; display: grid; place-items: center; background: light-dark(#fff, #14171c); color: light-dark(#17202b, #e6eaf0);
  font: 14px/1.45 system-ui, sans-serif; }
main { width: min(90vw, 480px); }
h1 { font-size: 20px; }
label { display: block; font-weight: 600; margin: 16px 0 4px; }
input, button { font: inherit; color: inherit; background: light-dark(#fff, #14171c); border: 1px solid light-dark(#7f8b98, #74808e); border-radius: 4px;
  padding: 6px 10px; }
input { width: 100%; box-sizing: border-box; }
button { margin-top: 12px; cursor: pointer; }
:focus-visible { outline: 2px solid light-dark(#0b57b8, #7fb4ff); outline-offset: 2px; }
code { overflow-wrap: anywhere; }
p { color: light-dark(#4d5966, #a7b1bd); }
p[role] { color: light-dark(#b3261e, #ff8a80); }`

// signInPage is the sign-in page with a problem to report.
var signInPage = template.Must(template.New("sign-in").Parse(`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Sign in · Tranche</title>
<style>` + signInStyle + `</style>
</head>
<body>
<main>
<h1>Tranche</h1>
<form method="post" action="sign-in">
<label for="token">Bearer token</label>
<input id="token" name="token" type="password" autocomplete="off" spellcheck="false" required autofocus aria-describedby="help">
{{with .}}<p role="alert">{{.}}</p>{{end}}
<button>Sign in</button>
</form>
<p id="help">Any token that the API server of this cluster accepts, such as that of a ServiceAccount:
<code>kubectl create token NAME --namespace NAMESPACE</code>. The page shows what its user may read.</p>
</main>
</body>
</html>
`))

// signInPolicy is the policy of the sign-in page.
func signInPolicy() string {
	sum := sha256.Sum256([]byte(signInStyle))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
}

// addSignIn adds the sign-in page, and what its form and the page send. Requests that another site has caused are refused.
func (s *server) addSignIn(mux *http.ServeMux) {
	mux.HandleFunc("GET /sign-in", func(w http.ResponseWriter, _ *http.Request) { s.showSignIn(w, http.StatusOK, "") })
	own := http.NewCrossOriginProtection()
	mux.Handle("POST /sign-in", own.Handler(http.HandlerFunc(s.signIn)))
	mux.Handle("POST /sign-out", own.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		keepToken(w, "", -1)
		goTo(w, "sign-in")
	})))
}

func (s *server) showSignIn(w http.ResponseWriter, status int, problem string) {
	w.Header().Set("Content-Security-Policy", s.signInPolicy)
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_ = signInPage.Execute(w, problem) // a client that has left gets no page
}

func (s *server) signIn(w http.ResponseWriter, r *http.Request) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(formTime)) // servers of tests may have none
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	token := strings.TrimSpace(r.PostFormValue("token"))
	switch {
	case token == "":
		s.showSignIn(w, http.StatusBadRequest, "Enter a token.")
		return
	case len(token) > maxToken:
		s.showSignIn(w, http.StatusBadRequest, "The token is too long for a cookie: let a proxy send it in the header Authorization.")
		return
	case strings.ContainsFunc(token, isNoTokenRune):
		s.showSignIn(w, http.StatusBadRequest, "The text is not a bearer token: it has characters that no token has.")
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), answerTime)
	defer cancel()
	if _, err := s.Gate.SignIn(ctx, token); err != nil {
		s.showSignIn(w, statusOf(err), sentence(err))
		return
	}
	keepToken(w, token, 0)
	goTo(w, "./")
}

// sentence returns the message of an error as a sentence.
func sentence(err error) string {
	text := err.Error()
	return strings.ToUpper(text[:min(1, len(text))]) + text[min(1, len(text)):] + "."
}

// isNoTokenRune reports whether a rune cannot be in a bearer token (RFC 6750).
func isNoTokenRune(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-._~+/=", r)
}

// keepToken sets the cookie until the browser ends, or removes it if age is negative.
func keepToken(w http.ResponseWriter, token string, age int) {
	http.SetCookie(w, &http.Cookie{
		Name: sessionCookie, Value: token, Path: "/", MaxAge: age, Secure: true, HttpOnly: true, SameSite: http.SameSiteStrictMode,
	})
}

// goTo redirects to a path that is relative to that of the request: a proxy may serve the dashboard below a path of its own.
func goTo(w http.ResponseWriter, path string) {
	w.Header().Set("Location", path)
	w.WriteHeader(http.StatusSeeOther)
}

// tokenOf returns the bearer token of a request, and whether it is in the cookie.
func tokenOf(r *http.Request) (token string, isInCookie bool) {
	if scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " "); strings.EqualFold(scheme, "bearer") {
		return strings.TrimSpace(token), false
	}
	if cookie, err := r.Cookie(sessionCookie); err == nil {
		return cookie.Value, true
	}
	return "", false
}

// session returns the session of a request, or nil if there is no Gate: then all objects are shown.
func (s *server) session(ctx context.Context, r *http.Request) (*access.Session, error) {
	if s.Gate == nil {
		return nil, nil //nolint:nilnil // no session is no error
	}
	if err := checkSender(r); err != nil {
		return nil, err
	}
	token, _ := tokenOf(r)
	if token == "" {
		return nil, apierrors.NewUnauthorized("sign in, or send a bearer token in the header Authorization")
	}
	return s.Gate.Open(ctx, token)
}

// checkSender refuses requests of proxies that impersonate users: their token is that of the proxy, which may see more than the user.
func checkSender(r *http.Request) error {
	const prefix = "Impersonate-"
	for name := range r.Header {
		if len(name) >= len(prefix) && strings.EqualFold(name[:len(prefix)], prefix) {
			return forbidden{fmt.Errorf("the header %s is not supported: the proxy must send the token of the user, not one of its own", name)}
		}
	}
	return nil
}

// signedIn serves files to users only. A browser that opens the page gets the sign-in page instead.
func (s *server) signedIn(files http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), answerTime)
		defer cancel()
		_, err := s.session(ctx, r)
		switch {
		case err == nil:
			files.ServeHTTP(w, r)
		case apierrors.IsUnauthorized(err) && r.URL.Path == "/":
			goTo(w, "sign-in")
		default:
			s.writeError(w, err)
		}
	})
}
