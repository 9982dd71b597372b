package simulator

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/apis"
	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	"github.com/tranche-dev/tranche/lifecycle/podgang"
	"github.com/tranche-dev/tranche/simulator/scenario"
)

// RandomConfiguration draws the settings of the manager that decide who is admitted and when, but admissionFairSharing, which countUsage adds,
// and those that ReserveQuota adds.
func RandomConfiguration(t *rapid.T) *configapi.Configuration {
	file := &configapi.Configuration{}
	file.StageAdmission = rapid.SampledFrom([]configapi.StageAdmission{"", configapi.StageAdmissionGreedy, configapi.StageAdmissionReserve}).Draw(t, "stage admission")
	if rapid.Bool().Draw(t, "fair sharing") {
		file.FairSharing = &configapi.FairSharing{PreemptionStrategies: rapid.SampledFrom([][]configapi.PreemptionStrategy{
			{configapi.LessThanOrEqualToFinalShare}, {configapi.LessThanInitialShare}, {configapi.LessThanOrEqualToFinalShare, configapi.LessThanInitialShare},
		}).Draw(t, "strategies")}
	}
	if rapid.IntRange(0, 3).Draw(t, "waits for pods") == 0 {
		w := &file.WaitForPodsReady
		w.Enable, w.BlockAdmission = new(true), new(rapid.Bool().Draw(t, "blocks admission"))
		w.Timeout = &metav1.Duration{Duration: time.Duration(rapid.IntRange(1, 10).Draw(t, "timeout")) * time.Minute}
		w.RequeuingStrategy.Timestamp = rapid.SampledFrom([]configapi.RequeuingTimestamp{configapi.RequeuingTimestampEviction, configapi.RequeuingTimestampCreation}).Draw(t, "timestamp")
	}
	if rapid.Bool().Draw(t, "looks ahead") {
		file.LookAhead.MaxAhead = new(rapid.Int32Range(0, 2).Draw(t, "most ahead"))
	}
	if rapid.Bool().Draw(t, "protects") {
		file.Preemption.MinimumRuntime = &metav1.Duration{Duration: time.Duration(rapid.IntRange(0, 20).Draw(t, "minimum runtime")) * time.Minute}
		file.Preemption.Notice = &metav1.Duration{Duration: time.Duration(rapid.IntRange(0, 10).Draw(t, "notice")) * 30 * time.Second}
		file.Preemption.LeastWork = new(rapid.Bool().Draw(t, "least work"))
	}
	file.SetDefaults()
	return file
}

// ReserveQuota draws for how long quota is reserved for stages that have waited for long and for those that start together, in the configuration and in
// single ClusterQueues, and how preemption is delayed there.
func ReserveQuota(t *rapid.T, file *configapi.Configuration, text string) string {
	if rapid.Bool().Draw(t, "starts together") {
		file.CoStart.Enable = new(rapid.IntRange(0, 3).Draw(t, "co-start") > 0)
		file.CoStart.ReserveFor = &metav1.Duration{Duration: time.Duration(rapid.IntRange(0, 20).Draw(t, "co-start reservation")) * 30 * time.Second}
	}
	if rapid.Bool().Draw(t, "reserves") {
		file.Reservation.After = rapid.SampledFrom([]string{"0s", "2m", "10m"}).Draw(t, "reservation after")
	}
	for _, queue := range []string{"x", "y"} {
		fields := ""
		for _, one := range [][]string{
			{"", "", " reserve-after=0s", " reserve-after=5m", " reserve-after=Never"},
			{"", "", " costart=0s", " costart=1m", " costart=Never"},
			{"", "", "", " minimum-runtime=4m"},
			{"", "", "", " preemption-notice=90s"},
		} {
			fields += rapid.SampledFrom(one).Draw(t, "field")
		}
		text = strings.Replace(text, "\nqueue "+queue+" ", "\nqueue "+queue+fields+" ", 1)
	}
	return text
}

// RandomLimits draws a scenario with two ClusterQueues, in a tree of Cohorts or not, and JobSets and other jobs that run as long as their limits.
// Stages are restarted if they are preempted, or have growths.
func RandomLimits(t *rapid.T) (text string, isRestarted bool) {
	w := &limitedWorld{T: t, isRestarted: rapid.Bool().Draw(t, "preempts")}
	w.draw()
	return w.text.String(), w.isRestarted
}

// RandomReservations draws a scenario like those of RandomLimits, in which stages preempt others and the pods of victims take time to terminate. Meanwhile
// quota is reserved for the preemptors, and for the heads of StrictFIFO queues.
func RandomReservations(t *rapid.T) string {
	w := &limitedWorld{T: t, isRestarted: true, isSlow: true}
	w.draw()
	return w.text.String()
}

func (w *limitedWorld) draw() {
	w.line("# Every stage runs as long as its limit.")
	w.line("admissioncheck c")
	w.line("flavor a")
	w.line("flavor b%s", w.one("taint", "", "", " taints=spot=true:NoSchedule"))
	w.line("flavor d")
	cohorts := w.cohorts()
	if w.isContested = cohorts[0] != "" && w.number("is contested", 0, 2) == 0; w.isContested {
		w.isRestarted = true
		w.line("queue idle cohort=lab a:gpu=%d d:cpu=8", w.number("idle", 3, 6))
	}
	for _, queue := range []string{"x", "y"} {
		w.queue(queue, w.one("cohort", cohorts...))
	}
	fewest, most := 1, 10
	if w.isSlow {
		fewest, most = 8, 14
	}
	for i := range w.number("jobs", fewest, most) {
		if w.number("is a gang", 0, 9) == 0 {
			w.gang(fmt.Sprintf("g%d", i))
		} else {
			w.submission(fmt.Sprintf("j%d", i))
		}
	}
}

// A limitedWorld is a scenario that is being drawn.
type limitedWorld struct {
	*rapid.T
	text strings.Builder
	// isRestarted is true if stages may be preempted or grow.
	isRestarted bool
	// isContested is true if the ClusterQueues have next to no quota of their own, and compete for that of an idle one.
	isContested bool
	// isSlow is true if pods take time to terminate.
	isSlow bool
}

func (w *limitedWorld) line(format string, args ...any) { fmt.Fprintf(&w.text, format+"\n", args...) }

func (w *limitedWorld) one(name string, of ...string) string {
	return rapid.SampledFrom(of).Draw(w.T, name)
}

func (w *limitedWorld) number(name string, least, most int) int {
	return rapid.IntRange(least, most).Draw(w.T, name)
}

// rarely is a field that one of four has.
func (w *limitedWorld) rarely(name, format string, least, most int) string {
	if w.number("has "+name, 0, 3) > 0 {
		return ""
	}
	return fmt.Sprintf(format, w.number(name, least, most))
}

// cohorts draws a tree, and returns the Cohorts in which ClusterQueues may be.
func (w *limitedWorld) cohorts() []string {
	switch w.one("tree", "none", "one", "two levels") {
	case "none":
		return []string{""}
	case "one":
		w.line("cohort lab%s", w.rarely("shared", " a:gpu=%d", 0, 4))
		return []string{"lab"}
	}
	w.line("cohort top%s", w.rarely("quota of top", " a:gpu=%d", 0, 4))
	for _, cohort := range []string{"lab", "ops"} {
		w.line("cohort %s parent=top%s%s", cohort, w.rarely("weight", " weight=%d", 0, 3), w.rarely("shared", " a:gpu=%d"+w.limits(), 0, 4))
	}
	return []string{"lab", "lab", "ops"}
}

// limits draws a borrowing limit and a lending limit.
func (w *limitedWorld) limits() string {
	return w.rarely("borrow", "/borrow=%d", 0, 4) + w.rarely("lend", "/lend=%d", 0, 4)
}

func (w *limitedWorld) queue(name, cohort string) {
	limits := func() string { return "" }
	fields := ""
	if cohort != "" {
		if !w.isContested {
			limits = w.limits
		}
		fields = " cohort=" + cohort + w.rarely("weight", " weight=%d", 0, 3)
	}
	if w.isRestarted {
		fields += w.one("within", "", " within=LowerPriority", " within=LowerOrNewerEqualPriority")
		if w.isContested {
			fields += " reclaim=Any"
		} else if cohort != "" {
			fields += w.one("reclaim", "", " reclaim=Any", " reclaim=LowerPriority", " reclaim=Any borrow-within=LowerPriority", " reclaim=LowerPriority borrow-within=LowerPriority:1")
		}
	}
	fields += w.one("fungibility", "", "", "", " when-can-borrow=TryNextFlavor", " when-can-preempt=MayStopSearch",
		" when-can-borrow=TryNextFlavor when-can-preempt=MayStopSearch", " when-can-borrow=MayStopSearch when-can-preempt=TryNextFlavor preference=PreemptionOverBorrowing",
		" when-can-borrow=TryNextFlavor when-can-preempt=TryNextFlavor preference=BorrowingOverPreemption")
	fields += w.one("checks", "", "", " checks=c", " checks=c@b")
	fields += w.one("policy", "", " policy=Safe", " policy=Reserve", " policy=Greedy")
	a, b := w.number("a", 2, 8), w.number("b", 0, 4)
	switch {
	case w.isContested:
		a, b = a/4, 0
	case w.isSlow:
		a, b = 2+a/4, 0
	}
	w.line("queue %s a:gpu=%d%s b:gpu=%d%s d:cpu=%d%s strategy=%s%s", name, a, limits(), b, limits(), w.number("d", 2, 8), limits(),
		w.one("strategy", "StrictFIFO", "BestEffortFIFO"), fields)
	w.line("localqueue %s2 queue=%[1]s%s", name, w.one("stopped", "", "", "", "", " stop=Hold"))
	if w.number("is stopped", 0, 9) == 0 {
		from := w.number("from", 0, 600)
		w.line("change queue %s stop=Hold at=%ds", name, from)
		if w.number("resumes", 0, 1) == 0 {
			w.line("change queue %s stop=None at=%ds", name, w.number("to", from, 600))
		}
	}
}

// submission draws a job, and growths of its stage.
func (w *limitedWorld) submission(name string) {
	shape := w.one("shape",
		"pods=%d*gpu:1", "stages=train(%d*gpu=1)", "stages=p(gpu=1)=Ready=>q(%d*gpu=1)", "stages=p(gpu=1)=Succeeded=>q(%d*gpu=1)", "stages=train(%d*gpu=1) replicas=2",
		"stages=p(gpu=1)=Ready=>q(%d*gpu=1);p=Succeeded=>r(gpu=1)",
		"pods=%d*gpu:1 min=1", "pods=driver(cpu=1)+worker(%d*gpu=1,cpu=1)", "stages=p(cpu=2)+q(%d*gpu=1)", "stages=p(cpu=2)=Succeeded=>q(%d*gpu=1,cpu=1)", "stages=train(%d*gpu=1)",
	)
	pods, minutes, at := w.number("pods", 1, 4), w.number("limit", 1, 40), w.number("at", 0, 600)
	more := w.one("tolerates", "", " tolerates=spot")
	if w.isSlow {
		minutes += 20
		more += fmt.Sprintf(" stop-after=%dm", w.number("stop", 5, 60))
	}
	isJobSet := strings.HasPrefix(shape, "stages=")
	if isJobSet {
		more += w.one("policy of the JobSet", "", "", "", " policy=Greedy", " policy=Reserve")
	}
	w.line("submit %s queue=%s "+shape+" priority=%d at=%ds run=%dm max-time=%[6]dm%s", name, w.one("queue", "x", "x2", "y", "y2"), pods, w.number("priority", 0, 2), at, minutes, more)
	if !strings.HasPrefix(shape, "stages=train(") || w.number("grows", 0, 3) > 0 {
		return
	}
	w.isRestarted = true
	for range w.number("sizes", 1, 2) {
		w.line("resize %s/train pods=%d at=%ds", name, w.number("size", 1, 6), w.number("resized", at, 600))
	}
}

// gang draws a gang of pods that gathers its quota in parts, or quota Workloads that are admitted together. Scenarios have no word for it: scheduleGangs
// reads these lines.
func (w *limitedWorld) gang(name string) {
	limit := w.number("limit", 1, 40)
	queue := w.one("queue", "x", "x2", "y", "y2")
	at := w.number("at", 0, 600)
	kind := w.one("kind", "parts", "together")
	for part := range w.number("parts", 2, 3) {
		w.line("# %s %s: submit %[2]s-%d queue=%s pods=%d*gpu:1 priority=1 at=%ds run=%dm max-time=%[7]dm", kind, name, part, queue, w.number("pods", 1, 3), at, limit)
	}
}

// scheduleGangs submits the gangs of a scenario that was drawn.
func scheduleGangs(s *simulation, text string) error {
	var lines []string
	gangs := map[string]int{}
	for line := range strings.Lines(text) {
		words := strings.SplitN(line, " ", 4)
		if len(words) == 4 && words[0] == "#" && (words[1] == "parts" || words[1] == "together") {
			lines = append(lines, line)
			gangs[words[2]]++
		}
	}
	seen := map[string]int{}
	for _, line := range lines {
		words := strings.SplitN(line, " ", 4)
		script, err := scenario.Parse("# A part.\n" + words[3])
		if err != nil {
			return err
		}
		gang := strings.TrimSuffix(words[2], ":")
		for i := range script.Lines {
			if part, isPart := script.Lines[i].Statement.(scenario.Submit); isPart {
				index, size := seen[gang], gangs[words[2]]
				seen[gang]++
				s.Events.Add(script.Lines[i].At, func() {
					if err := s.submitPart(part.Submission, words[1], gang, index, size); err != nil {
						s.Fail(err)
					}
				})
			}
		}
	}
	return nil
}

// submitPart submits a part of a gang. Its plan exists when the last one does.
func (s *simulation) submitPart(part *scenario.Submission, kind, gang string, index, size int) error {
	if err := s.submit(*part); err != nil {
		return err
	}
	key := types.NamespacedName{Namespace: part.Namespace, Name: part.Name}
	w := s.Workloads[key].DeepCopy()
	metav1.SetMetaDataAnnotation(&w.ObjectMeta, apis.PodGroupKey, "PodGroup."+gang)
	if kind == "together" {
		metav1.SetMetaDataLabel(&w.ObjectMeta, apis.AdmitTogetherLabel, gang)
		metav1.SetMetaDataAnnotation(&w.ObjectMeta, apis.AdmitTogetherCountAnnotation, strconv.Itoa(size))
	} else {
		metav1.SetMetaDataLabel(&w.ObjectMeta, apis.PlanUIDLabel, "plan-"+gang)
		metav1.SetMetaDataLabel(&w.ObjectMeta, apis.StageIndexLabel, strconv.Itoa(index))
	}
	s.PutWorkload(w)
	if kind == "together" || index < size-1 {
		return nil
	}
	var parts []*kueue.Workload
	for _, w := range sorted(s.Workloads) {
		if w.Labels[apis.PlanUIDLabel] == "plan-"+gang {
			parts = append(parts, w)
		}
	}
	plan := podgang.PlanOf(parts)
	s.Plans[plan.UID] = admission.PlanObserved{
		Owner: admission.Owner{Kind: admission.GangOwner, Key: types.NamespacedName{Namespace: part.Namespace, Name: gang}},
		UID:   plan.UID, Submitted: plan.Submitted, StageAdmission: admission.Safe, Plan: plan.Stages,
	}
	s.Observe(s.Plans[plan.UID])
	return nil
}
