package quotaaudit

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/charge"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/controllers/events"
	"github.com/tranche-dev/tranche/controllers/internal/informer"
	"github.com/tranche-dev/tranche/controllers/metrics"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
	"github.com/tranche-dev/tranche/lifecycle/ledger"
	"github.com/tranche-dev/tranche/lifecycle/queuedjob"
)

// A podAuditor compares what live pods ask for with what is charged for them.
//
// The cache of the manager has the pods of gangs, but neither those of queued Jobs nor the requests of those of JobSets. Their Jobs count them. So a
// check of the cache finds suspects. An account that exceeds its charge at two checks is judged by its pods, read past the cache, and one with unknown devices
// if it is the same at two checks, or has changed for restlessChecks. The check costs no request, and an account that was judged is judged again only when it
// has changed.
type podAuditor struct {
	config Config
	// suspects are those of the last check. judged has the fingerprints of the accounts that were judged, with the result.
	suspects map[ledger.Account]suspect
	judged   map[ledger.Account]judgment
}

// A suspect is an account that may ask for more than is charged.
type suspect struct {
	// fingerprint changes with what is known about the account.
	fingerprint uint64
	// exceeds is true if the account asks for more. Otherwise its devices are unknown.
	exceeds bool
	// checks counts the checks at which the account was a suspect, and not the one that was judged.
	checks int
}

// isDue reports whether a suspect is judged that was another one at the last check.
func (s suspect) isDue(last suspect) bool {
	return s.fingerprint == last.fingerprint || s.exceeds && last.exceeds || s.checks >= restlessChecks
}

// A judgment is what the API server showed about an account.
type judgment struct {
	fingerprint uint64
	namespace   string
	overruns    []ledger.Overrun
}

// A payee has the live pods of an account, or the Jobs that count them.
type payee struct {
	namespace string
	// selector finds the pods, regarding is the object for Events.
	selector  client.MatchingLabels
	regarding client.Object
	// claims is true if the pods claim devices that the Job does not show.
	claims bool
	// version changes with the objects.
	version uint64
}

// books are what one check of the cache has found.
type books struct {
	asked, charged ledger.Books
	payees         map[ledger.Account]*payee
}

// NeedLeaderElection returns true: only the leader audits.
func (a *podAuditor) NeedLeaderElection() bool { return true }

// Start audits until the context ends.
func (a *podAuditor) Start(ctx context.Context) error {
	for next := podPeriod; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(next):
		}
		next = podPeriod
		isNew, err := a.check(ctx)
		if err != nil && ctx.Err() == nil {
			ctrl.LoggerFrom(ctx).Error(err, "Auditing the accelerators of live pods failed, retrying")
		}
		if isNew {
			next = suspectAfter
		}
	}
}

// check runs one check. It reports whether there are suspects that the last one did not have.
func (a *podAuditor) check(ctx context.Context) (isNew bool, err error) {
	rules, err := a.config.rules(ctx)
	if err != nil {
		return false, err
	}
	b := &books{ledger.Books{}, ledger.Books{}, map[ledger.Account]*payee{}}
	workloads, err := informer.All(ctx, a.config.Cache, &kueue.Workload{})
	if err != nil {
		return false, err
	}
	for _, w := range workloads {
		b.charged.AddCharges(w)
	}
	if err := a.readJobs(ctx, b, rules); err != nil {
		return false, err
	}
	if err := a.readGangs(ctx, b, rules); err != nil {
		return false, err
	}
	due, isNew := a.suspect(b)
	var failed []error
	for _, account := range due[:min(len(due), maxConfirmations)] {
		failed = append(failed, a.judge(ctx, rules, account, b.payees[account], workloads))
	}
	maps.DeleteFunc(a.judged, func(account ledger.Account, _ judgment) bool {
		_, isStill := a.suspects[account]
		return !isStill
	})
	a.measure()
	return isNew, errors.Join(failed...)
}

// suspect remembers the suspects of a check. It returns those that are due to be judged, and whether there are others than at the last check.
func (a *podAuditor) suspect(b *books) (due []ledger.Account, isNew bool) {
	before := a.suspects
	a.suspects = b.suspects()
	for account, now := range a.suspects {
		last, wasSuspect := before[account]
		isNew = isNew || !wasSuspect
		if !wasSuspect || a.judged[account].fingerprint == now.fingerprint {
			continue
		}
		if now.checks = last.checks + 1; now.isDue(last) {
			now.checks, due = 0, append(due, account)
		}
		a.suspects[account] = now
	}
	return due, isNew
}

// readJobs adds what the Jobs that need quota count as their pods.
func (a *podAuditor) readJobs(ctx context.Context, b *books, rules *ledger.Rules) error {
	jobs, err := informer.All(ctx, a.config.Cache, &batchv1.Job{})
	if err != nil {
		return err
	}
	for _, job := range jobs {
		live := int64(job.Status.Active) + int64(ptr.Deref(job.Status.Terminating, 0))
		if live == 0 || !needsQuota(job) {
			continue
		}
		asked := ledger.Amounts{}
		asked.Add(rules.AcceleratorsOf(&job.Spec.Template.Spec), live)
		asked[corev1.ResourcePods] = live * 1000
		account := ledger.Account{Payer: job.UID, PodSet: kueue.DefaultPodSetName}
		of := payee{namespace: job.Namespace, selector: client.MatchingLabels{batchv1.ControllerUidLabel: string(job.UID)}, regarding: job}
		if uid := jobsetstate.JobSetOfJob(job); uid != "" {
			account = ledger.Account{Payer: uid, PodSet: kueue.NewPodSetReference(job.Labels[jobset.ReplicatedJobNameKey])}
			of.regarding = controllerOf(job)
			of.selector = client.MatchingLabels{jobset.JobSetUIDKey: string(uid), jobset.ReplicatedJobNameKey: job.Labels[jobset.ReplicatedJobNameKey]}
		}
		of.claims = len(job.Spec.Template.Spec.ResourceClaims) > 0
		b.add(account, &of, asked, job)
	}
	return nil
}

// readGangs adds the live pods of gangs.
func (a *podAuditor) readGangs(ctx context.Context, b *books, rules *ledger.Rules) error {
	pods, err := informer.All(ctx, a.config.GangPods, &corev1.Pod{})
	if err != nil {
		return err
	}
	claims, err := a.cachedClaims(ctx, pods)
	if err != nil {
		return err
	}
	for _, pod := range pods {
		if account, ok := ledger.AccountOf(pod); ok && ledger.IsLive(pod) {
			of := payee{namespace: pod.Namespace, selector: client.MatchingLabels{apis.PodGroupMemberLabel: apis.PodGroupMemberValue}, regarding: pod}
			b.add(account, &of, rules.Accelerators(pod, claims[pod.Namespace]), pod)
		}
	}
	return nil
}

// needsQuota reports whether a Job may have pods only while quota is held for it.
func needsQuota(job *batchv1.Job) bool {
	switch job.Labels[apis.HoldLabel] {
	case apis.HoldValue, apis.HoldQueued, apis.HoldAdopted:
		return true
	}
	return queuedjob.IsForeign(job)
}

// controllerOf returns the JobSet of a Job, for Events.
func controllerOf(job *batchv1.Job) client.Object {
	owner := metav1.GetControllerOfNoCopy(job)
	return &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: owner.APIVersion, Kind: owner.Kind},
		ObjectMeta: metav1.ObjectMeta{Namespace: job.Namespace, Name: owner.Name, UID: owner.UID},
	}
}

// add adds what an object asks for to an account.
func (b *books) add(account ledger.Account, of *payee, asked ledger.Amounts, object client.Object) {
	known := b.payees[account]
	if known == nil {
		known = of
		b.payees[account] = known
	}
	known.claims = known.claims || of.claims
	known.version += hashOf(string(object.GetUID()), object.GetResourceVersion()) // a sum, because the order is random
	b.asked.Add(account, asked)
}

// suspects returns the accounts that may ask for more than is charged.
func (b *books) suspects() map[ledger.Account]suspect {
	all := map[ledger.Account]suspect{}
	note := func(account ledger.Account, exceeds bool) {
		fingerprint := b.payees[account].version + hashOf(fmt.Sprint(b.asked[account], b.charged[account]))
		all[account] = suspect{fingerprint: fingerprint, exceeds: exceeds || all[account].exceeds}
	}
	for _, o := range ledger.Overruns(b.asked, b.charged) {
		// More pods than are charged matter only if they may have accelerators, also by the default of a LimitRange, which a Job does not show.
		if o.Resource != corev1.ResourcePods || hasAccelerators(b.asked[o.Account]) || hasAccelerators(b.charged[o.Account]) {
			note(o.Account, true)
		}
	}
	for account, of := range b.payees {
		if of.claims {
			note(account, false)
		}
	}
	return all
}

func hasAccelerators(amounts ledger.Amounts) bool {
	for name := range amounts {
		if charge.IsAccelerator(name) {
			return true
		}
	}
	return false
}

func hashOf(texts ...string) uint64 {
	h := fnv.New64a()
	for _, text := range texts {
		_, _ = h.Write([]byte(text)) // never fails
		_, _ = h.Write([]byte{0})
	}
	return h.Sum64()
}

// judge compares the pods of an account with its charges, and reports an excess.
func (a *podAuditor) judge(ctx context.Context, rules *ledger.Rules, account ledger.Account, of *payee, workloads []*kueue.Workload) error {
	var namespace corev1.Namespace
	if err := a.config.Cache.Get(ctx, types.NamespacedName{Name: of.namespace}, &namespace); err != nil {
		return client.IgnoreNotFound(err) // it is being deleted
	}
	now := judgment{fingerprint: a.suspects[account].fingerprint, namespace: of.namespace}
	if a.config.Namespaces.Matches(labels.Set(namespace.Labels)) {
		asked, charged, err := a.config.readLive(ctx, rules, account, of, workloads)
		if err != nil {
			return err
		}
		now.overruns = ledger.Overruns(asked, charged)
	}
	before := a.judged[account]
	a.judged[account] = now
	for _, o := range now.overruns {
		if slices.Contains(before.overruns, o) {
			continue
		}
		ctrl.LoggerFrom(ctx).Error(nil, "Live pods ask for more accelerators than quota is charged for", "namespace", of.namespace, "owner", of.regarding.GetName(),
			"podSet", o.PodSet, "resource", o.Resource, "asked", inUnits(o.Asked), "charged", inUnits(o.Charged))
		events.AcceleratorsUncharged(inUnits(o.Asked)+" "+string(o.Resource), inUnits(o.Charged)).Emit(a.config.Recorder, of.regarding)
	}
	return nil
}

func inUnits(thousandths int64) string {
	return strconv.FormatFloat(float64(thousandths)/1000, 'f', -1, 64)
}

// measure reports what the judged accounts ask for beyond their charges.
func (a *podAuditor) measure() {
	all := map[metrics.Uncharged]float64{}
	for _, j := range a.judged {
		for _, o := range j.overruns {
			all[metrics.Uncharged{Namespace: j.namespace, Resource: string(o.Resource)}] += float64(o.Asked-o.Charged) / 1000
		}
	}
	a.config.Metrics.SetUncharged(all)
}

// rules returns what is charged for pods now.
func (c *Config) rules(ctx context.Context) (*ledger.Rules, error) {
	rules := &ledger.Rules{Charges: c.Charges, Devices: c.Devices}
	if len(c.Devices) == 0 {
		return rules, nil
	}
	classes, err := informer.All(ctx, c.Cache, &resourcev1.DeviceClass{})
	if err != nil {
		return nil, err
	}
	rules.Extended = c.Devices.Extended(classes)
	return rules, nil
}
