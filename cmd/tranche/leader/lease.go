package leader

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// StopTimeout is how long the controllers may take to stop. After that the Lease is released all the same, so that another replica leads before the kubelet
// kills this one. Their requests end at once, but a busy work queue of controller-runtime 0.24 may block for good when it is shut down (its issue 3538).
const StopTimeout = 10 * time.Second

// triesEach is how often client-go tries to get or renew a Lease within its retry period. Most tries cost no request, see Lease.
const triesEach = 8

// A Lease is the lock of leader election, together with the Fence that follows it.
//
// client-go waits for one to 2.2 times its retry period between two looks at a Lease that another replica holds. It notices a renewal that much too
// late, and then the end of the Lease. So it gets a retry period of Config.TryEvery, and the Lease sends fewer requests: a leader renews once in
// Config.RetryPeriod, and a replica reads twice in that time. In between they are told what the last request has told them, also an error. The methods are
// for one goroutine at a time.
type Lease struct {
	resourcelock.Interface
	// Fence is open while the Lease is held.
	Fence *Fence

	retryPeriod time.Duration
	// looked is the last read, unless something was written since.
	looked *look
	// written is the last write, unless it met a conflict: then another client had changed the Lease, and it is written again at once.
	written *answer
}

// A look is when a Lease was read, and the answer.
type look struct {
	at     instant
	record *resourcelock.LeaderElectionRecord
	raw    []byte
	err    error
}

// An answer is when a Lease was written, and the answer.
type answer struct {
	at  instant
	err error
}

// A Config names the Lease that makes a replica the leader.
type Config struct {
	// Rest is the configuration for the API server. NewLease does not change it.
	Rest *rest.Config
	// Namespace and Name are those of the Lease.
	Namespace, Name string
	// RenewDeadline is how long a renewal counts. It is shorter than the duration of the Lease: the difference is for requests that the API
	// server has received and not yet processed.
	RenewDeadline time.Duration
	// RetryPeriod is the time between two renewals by a leader.
	RetryPeriod time.Duration
}

// TryEvery is the retry period for client-go.
func (c *Config) TryEvery() time.Duration { return max(c.RetryPeriod/triesEach, time.Millisecond) }

// NewLease returns the Lease with connections of its own, so that a slow or closed connection of the controllers does not keep it from being renewed.
func NewLease(c Config) (*Lease, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("name this replica: %w", err)
	}
	config := rest.CopyConfig(c.Rest)
	config.UserAgent += "/leader-election"
	// One hanging request must not use up the time of all tries.
	config.Timeout = max(c.RenewDeadline/2, time.Second)
	client, err := coordinationv1.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client for the Lease: %w", err)
	}
	return newLease(&resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Name},
		Client:     client,
		LockConfig: resourcelock.ResourceLockConfig{Identity: host + "_" + string(uuid.NewUUID())},
	}, newFence(c.RenewDeadline, newClock()), c.RetryPeriod), nil
}

func newLease(lock resourcelock.Interface, fence *Fence, retryPeriod time.Duration) *Lease {
	return &Lease{Interface: lock, Fence: fence, retryPeriod: retryPeriod}
}

// Get reads the Lease, or returns what it has just read. A holder other than this replica, after it has led, closes the Fence for good. A read that its
// caller has given up does not count: when a leader is told to end during a read, the next one is for the release.
func (l *Lease) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	if l.looked == nil || l.Fence.now().since(l.looked.at) >= l.retryPeriod/2 {
		l.look(ctx)
	}
	if err := l.looked.err; err != nil {
		if ctx.Err() != nil {
			l.looked = nil
		}
		return nil, nil, err
	}
	record := *l.looked.record
	return &record, l.looked.raw, nil
}

func (l *Lease) look(ctx context.Context) {
	at := l.Fence.now()
	record, raw, err := l.Interface.Get(ctx)
	l.looked = &look{at, record, raw, err}
	if err == nil {
		l.Fence.observe(record.HolderIdentity, l.Identity())
	}
}

// Create creates the Lease, held by this replica.
func (l *Lease) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.hold(record, func() error { return l.Interface.Create(ctx, record) })
}

// Update renews the Lease, takes it over, or releases it. It does not renew a Lease that it has just renewed or failed to renew. A replica that has lost it
// does not write it again: a release by the old leader would take it from the new one.
func (l *Lease) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	isHeld := record.HolderIdentity == l.Identity()
	if isHeld && l.written != nil && l.Fence.now().since(l.written.at) < l.retryPeriod && l.Fence.lost() == nil {
		return l.written.err
	}
	return l.hold(record, func() error { return l.Interface.Update(ctx, record) })
}

func (l *Lease) hold(record resourcelock.LeaderElectionRecord, write func() error) error {
	if err := l.Fence.lost(); err != nil {
		return err
	}
	began := l.Fence.now()
	err := write()
	l.looked, l.written = nil, &answer{began, err}
	if apierrors.IsConflict(err) {
		l.written = nil
	}
	if err != nil {
		return err
	}
	if record.HolderIdentity == l.Identity() {
		l.Fence.renew(began)
	} else {
		l.Fence.lose(errors.New("the Lease was released: this replica no longer leads"))
	}
	return nil
}
