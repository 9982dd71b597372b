package leader

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// StopTimeout is how long the controllers may take to stop. After that the Lease is released all the same, so that another replica leads before the kubelet
// kills this one. Their requests end at once, but a busy work queue of controller-runtime 0.24 may block for good when it is shut down (its issue 3538).
const StopTimeout = 10 * time.Second

// A Lease is the lock of leader election, together with the Fence that follows it.
type Lease struct {
	resourcelock.Interface
	// Fence is open while the Lease is held.
	Fence *Fence
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
}

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
	}, newFence(c.RenewDeadline, newClock())), nil
}

func newLease(lock resourcelock.Interface, fence *Fence) *Lease {
	return &Lease{Interface: lock, Fence: fence}
}

// Get reads the Lease. A holder other than this replica, after it has led, closes the Fence for good.
func (l *Lease) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	if err == nil {
		l.Fence.observe(record.HolderIdentity, l.Identity())
	}
	return record, raw, err
}

// Create creates the Lease, held by this replica.
func (l *Lease) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.hold(record, func() error { return l.Interface.Create(ctx, record) })
}

// Update renews the Lease, takes it over, or releases it. A replica that has lost it does not write it again: a release by the old leader
// would take it from the new one.
func (l *Lease) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.hold(record, func() error { return l.Interface.Update(ctx, record) })
}

func (l *Lease) hold(record resourcelock.LeaderElectionRecord, write func() error) error {
	if err := l.Fence.lost(); err != nil {
		return err
	}
	began := l.Fence.now()
	if err := write(); err != nil {
		return err
	}
	if record.HolderIdentity == l.Identity() {
		l.Fence.renew(began)
	} else {
		l.Fence.lose(errors.New("the Lease was released: this replica no longer leads"))
	}
	return nil
}
