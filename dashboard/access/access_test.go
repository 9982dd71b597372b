package access_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/dashboard/access"
)

const credentialID = "authentication.kubernetes.io/credential-id"

// An apiServer answers reviews, and counts them.
type apiServer struct {
	mu sync.Mutex
	// users has the user of each token.
	users map[string]string
	// allowed has the rights in the form "user verb resource namespace/name".
	allowed        map[string]bool
	down           bool
	tokens, rights int
	asked          []string
}

func (a *apiServer) reviewToken(_ context.Context, token string) (*authenticationv1.UserInfo, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tokens++
	if a.down {
		return nil, errors.New("connection refused")
	}
	if user := a.users[token]; user != "" {
		return &authenticationv1.UserInfo{Username: user, UID: user + "-uid", Groups: []string{"people"}, Extra: map[string]authenticationv1.ExtraValue{
			"x": {"y"}, credentialID: {"JTI=" + token}, // that of each token of a ServiceAccount is another
		}}, nil
	}
	return nil, nil //nolint:nilnil // a token of no user is no error
}

func (a *apiServer) reviewAccess(_ context.Context, spec *authorizationv1.SubjectAccessReviewSpec) (bool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.rights++
	if a.down {
		return false, errors.New("connection refused")
	}
	r := spec.ResourceAttributes
	question := fmt.Sprintf("%s %s %s %s/%s", spec.User, r.Verb, r.Resource, r.Namespace, r.Name)
	a.asked = append(a.asked, question)
	if len(spec.Groups) != 1 || spec.Extra["x"][0] != "y" {
		return false, fmt.Errorf("the review lacks the groups or the extra fields of the user: %v", spec)
	}
	return a.allowed[question], nil
}

func (a *apiServer) gate() *access.Gate {
	return access.New(&access.Config{ReviewToken: a.reviewToken, ReviewAccess: a.reviewAccess, OnError: func(error) {}})
}

func (a *apiServer) set(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f()
}

func newAPIServer() *apiServer {
	return &apiServer{users: map[string]string{"ada-token": "ada", "ada-2": "ada", "root-token": "root"}, allowed: map[string]bool{
		"ada list workloads team/": true, "ada list jobsets team/": true, "ada get jobsets team/js": true,
		"root list workloads /": true, "root list jobsets /": true, "root get clusterqueues /": true, "root get jobsets x/js": true,
	}}
}

func open(t *testing.T, g *access.Gate, token string) *access.Session {
	t.Helper()
	s, err := g.Open(t.Context(), token)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// sees returns which namespaces the user of a session sees, after as many rounds as an answer has.
func sees(t *testing.T, s *access.Session, namespaces ...string) string {
	t.Helper()
	for {
		var seen []string
		v := s.Viewer()
		for _, name := range namespaces {
			if v.Namespace == nil || v.Namespace(name) {
				seen = append(seen, name)
			}
		}
		hasLearned, err := s.Learn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if !hasLearned {
			return strings.Join(seen, " ")
		}
	}
}

// Tokens are reviewed once in 20 seconds, and a revoked one is refused from then on.
func TestTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer()
		g := a.gate()
		for range 100 {
			if s := open(t, g, "ada-token"); s.Name() != "ada" {
				t.Fatalf("the user is %q", s.Name())
			}
		}
		if a.tokens != 1 {
			t.Errorf("%d reviews of one token", a.tokens)
		}
		a.set(func() { delete(a.users, "ada-token") })
		time.Sleep(19 * time.Second)
		open(t, g, "ada-token")
		time.Sleep(time.Second)
		if _, err := g.Open(t.Context(), "ada-token"); !apierrors.IsUnauthorized(err) {
			t.Errorf("a revoked token: %v", err)
		}
		a.set(func() { a.users["ada-token"] = "ada" })
		time.Sleep(11 * time.Second)
		open(t, g, "ada-token")
	})
}

// Unknown tokens are reviewed at a limited rate, which known tokens do not share.
func TestUnknownTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer()
		g := a.gate()
		open(t, g, "ada-token")
		refused, limited := 0, 0
		for i := range 1000 {
			switch _, err := g.Open(t.Context(), fmt.Sprint("guess", i)); {
			case apierrors.IsUnauthorized(err):
				refused++
			case apierrors.IsTooManyRequests(err):
				limited++
			default:
				t.Fatal(err)
			}
		}
		if refused != 49 || limited != 951 || a.tokens != 50 {
			t.Errorf("%d refused, %d limited, %d reviews", refused, limited, a.tokens)
		}
		time.Sleep(20 * time.Second)
		for i := range 300 {
			_, _ = g.Open(t.Context(), fmt.Sprint("more", i))
		}
		open(t, g, "ada-token")
	})
}

// A refused token is not reviewed again with each request.
func TestRefusedToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer()
		g := a.gate()
		for range 100 {
			if _, err := g.Open(t.Context(), "wrong"); !apierrors.IsUnauthorized(err) {
				t.Fatal(err)
			}
		}
		if a.tokens != 1 {
			t.Errorf("%d reviews", a.tokens)
		}
	})
}

// While the API server does not answer, nothing is shown, and users do not get its error.
func TestAPIServerIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer()
		var reported []error
		g := access.New(&access.Config{ReviewToken: a.reviewToken, ReviewAccess: a.reviewAccess, OnError: func(err error) { reported = append(reported, err) }})
		open(t, g, "ada-token")
		a.set(func() { a.down = true })
		time.Sleep(20 * time.Second)
		if _, err := g.Open(t.Context(), "ada-token"); !apierrors.IsServiceUnavailable(err) || strings.Contains(err.Error(), "refused") {
			t.Errorf("got %v", err)
		}
		if len(reported) != 1 || !strings.Contains(reported[0].Error(), "review a token: connection refused") {
			t.Errorf("reported %v", reported)
		}
		a.set(func() { a.down = false })
		s := open(t, g, "ada-token")
		a.set(func() { a.down = true })
		s.Viewer().Namespace("team")
		if _, err := s.Learn(t.Context()); !apierrors.IsServiceUnavailable(err) {
			t.Errorf("got %v", err)
		}
		a.set(func() { a.down = false })
		if got := sees(t, open(t, g, "ada-token"), "team"); got != "team" {
			t.Errorf("afterwards ada sees %q: an error is no denial", got)
		}
	})
}

// A user who may read all namespaces costs three reviews.
func TestAdministrator(t *testing.T) {
	a := newAPIServer()
	s := open(t, a.gate(), "root-token")
	if v := s.Viewer(); v.Namespace != nil || v.ClusterQueue != nil || v.JobSets != nil || a.rights != 3 {
		t.Errorf("the viewer is %v after %d reviews: %v", v, a.rights, a.asked)
	}
}

// Each right is reviewed for itself, and only that of namespaces for which an answer asks.
func TestRights(t *testing.T) {
	a := newAPIServer()
	a.allowed["ada get clusterqueues /mine"] = true
	g := a.gate()
	s := open(t, g, "ada-token")
	for range 3 {
		v := s.Viewer()
		got := fmt.Sprint(v.Namespace("team"), v.Namespace("other"), v.SeesJobSets("team"), v.SeesJobSets("other"), v.ClusterQueue("mine"), v.ClusterQueue("yours"))
		hasLearned, err := s.Learn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if want := "true false true false true false"; !hasLearned && got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	for _, question := range a.asked {
		if strings.HasPrefix(question, "ada list jobsets other") {
			t.Errorf("asked %s, though the namespace is hidden", question)
		}
	}
	for key, want := range map[types.NamespacedName]bool{
		{Namespace: "team", Name: "js"}: true, {Namespace: "team", Name: "js2"}: false, {Namespace: "other", Name: "js"}: false,
	} {
		if got, err := s.MayGetJobSet(t.Context(), key); got != want || err != nil {
			t.Errorf("JobSet %s: %v, %v", key, got, err)
		}
	}
	a.set(func() { a.allowed["ada get jobsets secret/js"] = true })
	if got, err := s.MayGetJobSet(t.Context(), types.NamespacedName{Namespace: "secret", Name: "js"}); got || err != nil {
		t.Errorf("a JobSet whose quota Workloads are hidden: %v, %v", got, err)
	}
}

// Revoked rights are gone after 30 seconds, granted ones are there after ten minutes, or at once after the user has signed in again.
func TestRightsChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer()
		g := a.gate()
		if got := sees(t, open(t, g, "ada-token"), "team", "new"); got != "team" {
			t.Fatalf("ada sees %q", got)
		}
		a.set(func() { a.allowed["ada list workloads team/"], a.allowed["ada list workloads new/"] = false, true })
		time.Sleep(30 * time.Second)
		if got := sees(t, open(t, g, "ada-token"), "team", "new"); got != "" {
			t.Errorf("after 30 seconds ada sees %q", got)
		}
		if _, err := g.SignIn(t.Context(), "ada-2"); err != nil {
			t.Fatal(err)
		}
		if got := sees(t, open(t, g, "ada-token"), "team", "new"); got != "new" {
			t.Errorf("after she has signed in again she sees %q", got)
		}
		a.set(func() { a.allowed["ada list workloads team/"] = true })
		time.Sleep(9 * time.Minute)
		before := a.rights
		if sees(t, open(t, g, "ada-token"), "team"); a.rights != before {
			t.Errorf("%d reviews of what was denied nine minutes ago", a.rights-before)
		}
		time.Sleep(time.Minute)
		if got := sees(t, open(t, g, "ada-token"), "team", "new"); got != "team new" {
			t.Errorf("after ten minutes ada sees %q", got)
		}
	})
}

// Signing in again and again costs no more reviews than reading: grants are kept, and denials are forgotten at most every 10 seconds.
func TestSignInAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer()
		g := a.gate()
		a.allowed["ada list jobsets /"] = true
		signIn := func() {
			for range 100 {
				s, err := g.SignIn(t.Context(), "ada-token")
				if err != nil {
					t.Fatal(err)
				}
				if got := sees(t, s, "team", "other"); got != "team" {
					t.Errorf("ada sees %q", got)
				}
			}
		}
		signIn()
		if want := 5; a.rights != want {
			t.Errorf("%d reviews, want %d", a.rights, want)
		}
		time.Sleep(10 * time.Second)
		signIn()
		if want := 5 + 3; a.rights != want {
			t.Errorf("%d reviews, want %d", a.rights, want)
		}
	})
}

// With a thousand namespaces one answer causes a bounded number of reviews. Later answers have all, and renew first what the user saw.
func TestThousandNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer()
		g := a.gate()
		var names []string
		for i := range 1000 {
			names = append(names, fmt.Sprint("ns", i))
		}
		names = append(names, "team")
		s := open(t, g, "ada-token")
		before := s.Unfinished()
		if got := sees(t, s, names...); got != "" || a.rights != 303 || s.Unknown() != 701 || s.Unfinished() != before+1 {
			t.Errorf("sees %q after %d reviews, %d are unknown, %d answers are unfinished", got, a.rights, s.Unknown(), s.Unfinished()-before)
		}
		sees(t, open(t, g, "ada-2"), names[:500]...)
		if a.rights != 350 {
			t.Errorf("%d reviews, though one user may cause 350 at once", a.rights)
		}
		for range 3 {
			time.Sleep(10 * time.Second)
			sees(t, open(t, g, "ada-token"), names...)
		}
		if got := sees(t, open(t, g, "ada-token"), names...); got != "team" {
			t.Errorf("sees %q after %d reviews", got, a.rights)
		}
		if a.rights > 350+30*30 {
			t.Errorf("%d reviews in 30 seconds, though one user may cause 30 in each", a.rights)
		}
		// What the user saw is renewed first.
		time.Sleep(10 * time.Minute)
		if got := sees(t, open(t, g, "ada-token"), names...); got != "team" {
			t.Errorf("sees %q when all has to be reviewed again", got)
		}
	})
}

// One who has used up their reviews waits for the next one, no others do.
func TestManyReviews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer()
		g := a.gate()
		s := open(t, g, "ada-token")
		get := func(i int) {
			if _, err := s.MayGetJobSet(t.Context(), types.NamespacedName{Namespace: "team", Name: fmt.Sprint("js", i)}); err != nil {
				t.Fatal(err)
			}
		}
		started := time.Now()
		for i := range 347 {
			get(i)
		}
		if took := time.Since(started); took != 0 {
			t.Errorf("350 reviews take %s", took)
		}
		open(t, g, "root-token")
		if took := time.Since(started); took != 0 {
			t.Errorf("another user waits for %s", took)
		}
		for i := range 30 {
			get(1000 + i)
		}
		if took := time.Since(started).Round(time.Millisecond); took != time.Second {
			t.Errorf("30 more reviews take %s", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if _, err := s.MayGetJobSet(ctx, types.NamespacedName{Namespace: "team", Name: "last"}); !apierrors.IsTooManyRequests(err) {
			t.Errorf("got %v", err)
		}
	})
}

// The answers to one user take a quarter of the time, and the number of streams is limited, however many tokens the user has.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer()
		g := a.gate()
		started := time.Now()
		for i := range 10 {
			done, err := open(t, g, []string{"ada-token", "ada-2"}[i%2]).Turn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Millisecond)
			done(10 * time.Millisecond)
		}
		if took := time.Since(started); took != 9*40*time.Millisecond+10*time.Millisecond {
			t.Errorf("10 answers took %s", took)
		}
		done, err := open(t, g, "root-token").Turn(t.Context())
		if err != nil || time.Since(started) != 370*time.Millisecond {
			t.Errorf("another user waits: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := open(t, g, "root-token").Turn(ctx); !apierrors.IsTooManyRequests(err) {
			t.Errorf("got %v", err)
		}
		done(0)
		var ends []func()
		for range 20 {
			end, err := open(t, g, "ada-token").Stream()
			if err != nil {
				t.Fatal(err)
			}
			ends = append(ends, end)
		}
		if _, err := open(t, g, "ada-2").Stream(); !apierrors.IsTooManyRequests(err) {
			t.Errorf("the 21st stream: %v", err)
		}
		ends[0]()
		if _, err := open(t, g, "ada-2").Stream(); err != nil {
			t.Error(err)
		}
	})
}

// Authorizers may read the extra fields of a user, so that one token allows what another does not.
func TestRightsOfTokens(t *testing.T) {
	a := newAPIServer()
	g := access.New(&access.Config{
		ReviewToken: a.reviewToken, OnError: func(err error) { t.Error(err) },
		ReviewAccess: func(_ context.Context, spec *authorizationv1.SubjectAccessReviewSpec) (bool, error) {
			return spec.Extra[credentialID][0] == "JTI=ada-2", nil
		},
	})
	for token, want := range map[string]string{"ada-2": "team", "ada-token": ""} {
		if got := sees(t, open(t, g, token), "team"); got != want {
			t.Errorf("with %s ada sees %q", token, got)
		}
	}
}
