package upgrade_test

import (
	"context"
	"errors"
	"fmt"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

// kindsOfGuests are a JobSet, a Job, a gang, and a JobSet that is deleted before its end. As many of each as guestsAtOnce allows are there at a time.
const kindsOfGuests, guestsAtOnce = 4, 4

// traffic submits short JobSets, Jobs and gangs, whatever else happens.
var traffic struct {
	sync.Mutex

	submitted int
	err       error
}

// submitGuests submits one after the other until its context ends. None may be refused.
func submitGuests(ctx context.Context) {
	_ = wait.PollUntilContextCancel(ctx, poll, true, func(ctx context.Context) (bool, error) {
		present, err := presentGuests(ctx)
		traffic.Lock()
		defer traffic.Unlock()
		if err == nil && present < guestsAtOnce {
			err = submitGuest(ctx, traffic.submitted)
			traffic.submitted++
		}
		if err != nil && ctx.Err() == nil {
			traffic.err = errors.Join(traffic.err, err)
		}
		return false, nil
	})
}

// presentGuests counts the guests that have not finished.
func presentGuests(ctx context.Context) (int, error) {
	present := 0
	var jobSets jobsetapi.JobSetList
	if err := current.Admin.List(ctx, &jobSets, client.InNamespace(guests)); err != nil {
		return 0, err
	}
	for i := range jobSets.Items {
		if jobSets.Items[i].Status.TerminalState == "" {
			present++
		}
	}
	var jobs batchv1.JobList
	if err := current.Admin.List(ctx, &jobs, client.InNamespace(guests)); err != nil {
		return 0, err
	}
	for i := range jobs.Items {
		if jobs.Items[i].Status.CompletionTime == nil && jobs.Items[i].Labels[jobset.JobSetNameKey] == "" {
			present++
		}
	}
	return present, nil
}

func submitGuest(ctx context.Context, n int) error {
	name := fmt.Sprintf("guest-%04d", n)
	var object client.Object
	switch n % kindsOfGuests {
	case 1:
		object = job(name, "guests", shortly)
	case 2:
		object = gang(name, "guests", shortly)
	default:
		object = staged(name, "guests", -1)
	}
	object.SetNamespace(guests)
	if err := current.Admin.Create(ctx, object); err != nil {
		return fmt.Errorf("submit %s: %w", name, err)
	}
	if n < kindsOfGuests || n%kindsOfGuests != 3 {
		return nil
	}
	deleted := staged(fmt.Sprintf("guest-%04d", n-kindsOfGuests), "guests", -1)
	deleted.Namespace = guests
	return client.IgnoreNotFound(current.Admin.Delete(ctx, deleted, client.PropagationPolicy(metav1.DeletePropagationBackground)))
}

// expectProgress waits until a guest of each kind that is submitted from now on has completed.
func expectProgress(ctx context.Context) {
	GinkgoHelper()
	traffic.Lock()
	first := traffic.submitted + 1
	traffic.Unlock()
	Eventually(func(g Gomega) {
		traffic.Lock()
		submitted := traffic.submitted
		traffic.Unlock()
		g.Expect(submitted).To(BeNumerically(">=", first+kindsOfGuests))
		for n := first; n < first+kindsOfGuests; n++ {
			g.Expect(unfinished(ctx, g, guests, fmt.Sprintf("guest-%04d", n))).To(BeEmpty())
		}
	}).WithContext(ctx).Should(Succeed())
	traffic.Lock()
	defer traffic.Unlock()
	Expect(traffic.err).NotTo(HaveOccurred(), "no guest is refused")
}
