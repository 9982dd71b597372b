package live

import (
	"context"
	"errors"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/dashboard/server"
)

// A leaseReader answers with a Lease that was released, or with an error.
type leaseReader struct {
	client.WithWatch
	renewed time.Time
	holder  string
	err     error
}

func (l *leaseReader) Get(_ context.Context, _ client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	if lease, is := object.(*coordinationv1.Lease); is {
		lease.Spec = coordinationv1.LeaseSpec{HolderIdentity: &l.holder, LeaseDurationSeconds: new(int32(15)), RenewTime: new(metav1.NewMicroTime(l.renewed))}
	}
	return l.err
}

// TestFeedSaysThatNoManagerLeads also checks that viewers are told at once, and only if something has changed.
func TestFeedSaysThatNoManagerLeads(t *testing.T) {
	reader, store := &leaseReader{renewed: time.Now(), holder: "one"}, server.NewStore()
	f := New(&Config{Client: reader}, store)
	expect := func(what string, noLeader, isStale, isTold bool) {
		t.Helper()
		before := store.Version()
		f.readLeader(t.Context())
		about := f.About()
		if (about.WithoutLeader != "") != noLeader || about.IsStale != isStale || (store.Version() != before) != isTold {
			t.Errorf("%s: %+v, told: %t", what, about, store.Version() != before)
		}
	}
	expect("a leader", false, false, false)
	reader.holder = ""
	expect("it has released its Lease", true, false, true)
	expect("still", true, false, false)
	reader.err = errors.New("connection refused")
	expect("the API server does not answer", true, true, true)
	reader.err, reader.holder, reader.renewed = nil, "two", time.Now()
	expect("another leader", false, false, true)
}
