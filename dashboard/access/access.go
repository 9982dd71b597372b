// Package access decides what the senders of requests to the dashboard may see. It keeps no list of users or rights: the API server reviews tokens
// and rights, and its answers are kept for less than a minute if they allow something.
package access

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"
)

// How long answers of the API server count. Rights that are revoked must be gone within a minute; most namespaces are denied to most users, so
// denials are kept longer: new rights are seen later, or after the user has signed in again.
const (
	tokenTime   = 20 * time.Second
	refusalTime = 10 * time.Second
	grantTime   = 30 * time.Second
	denialTime  = 10 * time.Minute
	// knownTime is how long a token that was accepted counts as known: reviews of known tokens are not limited by those of unknown ones.
	knownTime = 10 * time.Minute
)

// signInInterval is the shortest time after which signing in again forgets denials again.
const signInInterval = 10 * time.Second

// Limits of what is kept, of reviews of unknown tokens, and of reviews of the rights of one person. The first answer to them is one burst.
const (
	maxTokens     = 4096
	maxVerdicts   = 65_536
	unknownPerSec = 10
	unknownBurst  = 50
	rightsPerSec  = 30
	rightsBurst   = 350
)

// A Config configures a Gate.
type Config struct {
	// ReviewToken returns the user of a token, or nil if the API server does not accept the token.
	ReviewToken func(ctx context.Context, token string) (*authenticationv1.UserInfo, error)
	// ReviewAccess reports whether a user has a right.
	ReviewAccess func(ctx context.Context, review *authorizationv1.SubjectAccessReviewSpec) (bool, error)
	// OnError gets the errors of the API server. Users do not get them.
	OnError func(error)
	// Clock is the time, which is that of the machine if it is nil.
	Clock clock.Clock
}

// A Gate opens sessions. It is safe for concurrent use.
type Gate struct {
	Config
	// secret makes the keys of tokens: the tokens themselves are not kept.
	secret []byte
	// tokens has an identity for each key of a token, people a *person for each key of a person, and verdicts a verdict for each question.
	tokens, people, verdicts *utilcache.LRUExpireCache
	unknown                  flowcontrol.PassiveRateLimiter
	// meeting is held while a person is looked up, so that none is met twice.
	meeting sync.Mutex
}

// New returns a Gate.
func New(config *Config) *Gate {
	g := &Gate{Config: *config, secret: []byte(rand.Text())}
	if g.Clock == nil {
		g.Clock = clock.RealClock{}
	}
	g.tokens = utilcache.NewLRUExpireCacheWithClock(maxTokens, g.Clock)
	g.people = utilcache.NewLRUExpireCacheWithClock(maxTokens, g.Clock)
	g.verdicts = utilcache.NewLRUExpireCacheWithClock(maxVerdicts, g.Clock)
	g.unknown = flowcontrol.NewTokenBucketPassiveRateLimiterWithClock(unknownPerSec, unknownBurst, g.Clock)
	return g
}

// A key identifies a token, a user or a person without containing it.
type key [sha256.Size]byte

func (g *Gate) keyOf(text []byte) (k key) {
	mac := hmac.New(sha256.New, g.secret)
	mac.Write(text)
	mac.Sum(k[:0])
	return k
}

// An identity is the answer about a token. Its user is nil if the token was not accepted.
type identity struct {
	user     *User
	reviewed time.Time
}

// A User is the sender of requests, with all that the API server knows about their token. The key stands for all of that, because authorizers may
// read it: tokens of one person may have different rights.
type User struct {
	info authenticationv1.UserInfo
	key  key
	*person
}

// A person has all tokens of one name and UID: each token of a ServiceAccount has an ID of its own among the extra fields.
type person struct {
	// unfinished counts the answers for which not all rights were known.
	unfinished atomic.Uint64
	pace
	// reviews limits the reviews of their rights.
	reviews flowcontrol.RateLimiter
	// forgotten is how often denials were forgotten, and since when the last time was.
	forgotten atomic.Uint64
	mu        sync.Mutex
	since     time.Time
}

// forget makes denials that are known invalid, unless that was done just before.
func (p *person) forget(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Sub(p.since) >= signInInterval {
		p.since = now
		p.forgotten.Add(1)
	}
}

// A verdict is the answer to a question. After its time it is not known whether it still holds.
type verdict struct {
	isAllowed bool
	until     time.Time
	// forgotten is that of the person when the question was asked. A denial holds only as long as it is the same.
	forgotten uint64
}

// Open returns a session of the user of a token. It fails with an error for the user if the token is not accepted, or cannot be reviewed.
func (g *Gate) Open(ctx context.Context, token string) (*Session, error) {
	user, err := g.userOf(ctx, token)
	if err != nil {
		return nil, err
	}
	return g.open(ctx, user)
}

// SignIn is Open for a token that a user has just entered: rights that were denied before are reviewed again.
func (g *Gate) SignIn(ctx context.Context, token string) (*Session, error) {
	user, err := g.userOf(ctx, token)
	if err != nil {
		return nil, err
	}
	user.forget(g.Clock.Now())
	return g.open(ctx, user)
}

func (g *Gate) userOf(ctx context.Context, token string) (*User, error) {
	k := g.keyOf([]byte(token))
	var known identity
	if found, isThere := g.tokens.Get(k); isThere {
		known, _ = found.(identity)
		if known.user == nil {
			return nil, errRefused()
		}
		if g.Clock.Since(known.reviewed) < tokenTime {
			return known.user, nil
		}
	}
	if known.user == nil && !g.unknown.TryAccept() {
		return nil, apierrors.NewTooManyRequests("too many unknown tokens are being verified; retry", 1)
	}
	info, err := g.ReviewToken(ctx, token)
	if err != nil {
		g.OnError(fmt.Errorf("review a token: %w", err))
		return nil, apierrors.NewServiceUnavailable("tokens cannot be verified at present; the log of the manager has the reason")
	}
	if info == nil {
		g.tokens.Add(k, identity{}, refusalTime)
		return nil, errRefused()
	}
	user, err := g.user(info)
	if err != nil {
		return nil, err
	}
	g.tokens.Add(k, identity{user: user, reviewed: g.Clock.Now()}, knownTime)
	return user, nil
}

func errRefused() error {
	return apierrors.NewUnauthorized("the API server does not accept the token: it may have expired, or belong to another cluster")
}

// user returns the User with these facts.
func (g *Gate) user(info *authenticationv1.UserInfo) (*User, error) {
	if info.Username == "" {
		return nil, errRefused()
	}
	text, err := json.Marshal(info) // with its maps in the order of their keys
	if err != nil {
		return nil, fmt.Errorf("encode the user: %w", err)
	}
	return &User{info: *info, key: g.keyOf(text), person: g.person(info)}, nil
}

// person returns the person whom all tokens with a name and a UID share.
func (g *Gate) person(info *authenticationv1.UserInfo) *person {
	k := g.keyOf([]byte(info.Username + "\x00" + info.UID))
	g.meeting.Lock()
	defer g.meeting.Unlock()
	found, _ := g.people.Get(k)
	p, isKnown := found.(*person)
	if !isKnown {
		p = &person{pace: newPace(g.Clock), reviews: flowcontrol.NewTokenBucketRateLimiter(rightsPerSec, rightsBurst)}
	}
	g.people.Add(k, p, knownTime)
	return p
}

// review answers a question, from the answers that are kept if possible. Otherwise it waits until the person may cause one more review.
func (g *Gate) review(ctx context.Context, u *User, q question) (bool, error) {
	if known, isKnown := g.verdict(u, q); isKnown {
		return known.isAllowed, nil
	}
	if u.reviews.Wait(ctx) != nil {
		return false, errBusy()
	}
	return g.ask(ctx, u, q)
}

// ask asks the API server a question.
func (g *Gate) ask(ctx context.Context, u *User, q question) (bool, error) {
	forgotten := u.forgotten.Load()
	allowed, err := g.ReviewAccess(ctx, q.spec(&u.info))
	if err != nil {
		if !errors.Is(err, context.Canceled) {
			g.OnError(fmt.Errorf("review the rights of a user: %w", err))
		}
		return false, apierrors.NewServiceUnavailable("rights cannot be verified at present; the log of the manager has the reason")
	}
	ttl := denialTime
	if allowed {
		ttl = grantTime
	}
	g.verdicts.Add(q, verdict{allowed, g.Clock.Now().Add(ttl), forgotten}, knownTime)
	return allowed, nil
}

// verdict returns the last answer to a question, and whether it still holds.
func (g *Gate) verdict(u *User, q question) (last verdict, isKnown bool) {
	if found, isThere := g.verdicts.Get(q); isThere {
		last, _ = found.(verdict)
	}
	isKnown = g.Clock.Now().Before(last.until) && (last.isAllowed || last.forgotten == u.forgotten.Load())
	return last, isKnown
}
