package snapshot

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"reflect"
	"regexp"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
)

// An Anonymizer replaces names by pseudonyms: a keyed hash, with a key that is not written. The same string has the same pseudonym everywhere,
// so that references stay right.
//
// Every string of an object is replaced, unless it is one of these: a word of an API, such as the value of a field that has a few values; the
// name of a resource or of a DeviceClass; a key of a label that belongs to Kubernetes, Kueue, JobSet, Tranche or a scheduler of gangs; a UID;
// a whole number, true or false.
type Anonymizer struct {
	key []byte

	mu         sync.Mutex
	pseudonyms map[string]string
}

// NewAnonymizer returns an Anonymizer with a random key.
func NewAnonymizer() *Anonymizer {
	a := &Anonymizer{key: make([]byte, sha256.Size), pseudonyms: map[string]string{}}
	_, _ = rand.Read(a.key) // never fails
	return a
}

// Object returns a copy of an object with pseudonyms. Of the labels and annotations of users it keeps none that reduced leaves out.
func (a *Anonymizer) object(object Object) Object {
	anonymous := object.DeepCopyObject().(Object)
	w := walker{Anonymizer: a, parts: a.partsOf(object)}
	w.walk(reflect.ValueOf(anonymous).Elem(), "")
	if _, isDeviceClass := object.(*resourcev1.DeviceClass); isDeviceClass {
		// The configuration maps these names to those of resources.
		anonymous.SetName(object.GetName())
	}
	return anonymous
}

func (a *Anonymizer) configuration(config *configapi.Configuration) *configapi.Configuration {
	anonymous := config.DeepCopy()
	w := walker{Anonymizer: a}
	w.walk(reflect.ValueOf(anonymous).Elem(), "")
	return anonymous
}

func (a *Anonymizer) names(all []string) []string {
	var anonymous []string
	for _, name := range all {
		anonymous = append(anonymous, a.Name(name))
	}
	return anonymous
}

// gaps leaves out the reasons, which name users.
func (a *Anonymizer) gaps(all []Gap) []Gap {
	var anonymous []Gap
	for i := range all {
		anonymous = append(anonymous, Gap{
			Resource: all[i].Resource, Namespaces: a.names(all[i].Namespaces), Reason: "could not be read", Cure: all[i].Cure, IsAbsent: all[i].IsAbsent,
		})
	}
	return anonymous
}

// partsOf returns the pseudonyms of the names that the JobSet controller composes: that of a Job consists of the names of its JobSet and its
// ReplicatedJob, and an index. Other objects of the Job have the same labels.
func (a *Anonymizer) partsOf(object metav1.Object) map[string]string {
	labels := object.GetLabels()
	name, job, index := labels[jobset.JobSetNameKey], labels[jobset.ReplicatedJobNameKey], labels[jobset.JobIndexKey]
	if name == "" || job == "" || index == "" {
		return nil
	}
	return map[string]string{name + "-" + job + "-" + index: a.Name(name) + "-" + a.Name(job) + "-" + index}
}

// Name returns the pseudonym of a name.
func (a *Anonymizer) Name(name string) string {
	if isWord(name) {
		return name
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	pseudonym, exists := a.pseudonyms[name]
	if !exists {
		hash := hmac.New(sha256.New, a.key)
		hash.Write([]byte(name))
		// 65 bits, so that no two of a million names are the same. It is valid wherever Kubernetes has names.
		pseudonym = "x" + strings.ToLower(base32.StdEncoding.EncodeToString(hash.Sum(nil))[:13])
		if len(a.pseudonyms) < maxRemembered {
			a.pseudonyms[strings.Clone(name)] = pseudonym
		}
	}
	return pseudonym
}

// maxRemembered limits the memory for pseudonyms that need not be computed again.
const maxRemembered = 100_000

// number matches a whole number, and indexes a range of them, as lists of Jobs have.
var (
	number  = regexp.MustCompile(`^[0-9]{1,9}$`)
	indexes = regexp.MustCompile(`^[0-9]+-[0-9]+$`)
)

// notice matches the part of the condition PreemptionPending that decides: when a quota Workload is evicted, and the UID of its preemptor.
var notice = regexp.MustCompile(`^The pods end at [-0-9TZ:]+, to accommodate a workload \(UID: [-0-9a-zA-Z]+,`)

// isWord reports whether a string is no name.
func isWord(s string) bool {
	return s == "" || words.Has(s) || number.MatchString(s) || isKnownKey(s) && !strings.ContainsAny(s, ",;:= ")
}

// words have a meaning in the APIs, or are the same on every cluster.
var words = sets.New(
	"true", "false", "default", "kube-system", "kube-public", "kube-node-lease", apis.SystemNamespace,
	// policies, modes and effects in annotations
	"Safe", "Reserve", "Greedy", "Off", "Gang", "ReplicatedGang", "None", "Kube", "Coscheduling", "Volcano", "Koordinator", "Strict", "NonStrict",
	apis.EngineTranche, apis.EngineKueue, string(kueue.Hold), string(kueue.HoldAndDrain),
	apis.HoldUnqueued, apis.HoldQueued, apis.HoldAdopted, "Equal", "Exists", "Lt", "Gt", "NoSchedule", "PreferNoSchedule", "NoExecute", "Always", "IfReady",
	// names of pod sets that are not those of ReplicatedJobs, and kinds of gangs
	"main", apis.ReservedPodSet, "all", "kueue", "core", "coscheduling", "koordinator", "lightweight", "group-name",
	// schedulers
	corev1.DefaultSchedulerName, apis.CoschedulingScheduler, apis.VolcanoScheduler, apis.KoordinatorScheduler,
	metav1.FinalizerDeleteDependents, metav1.FinalizerOrphanDependents,
)

// A walker replaces the strings of one value.
type walker struct {
	*Anonymizer
	// parts has pseudonyms of composed names.
	parts map[string]string
}

func (w *walker) name(s string) string {
	if pseudonym, isComposed := w.parts[s]; isComposed {
		return pseudonym
	}
	return w.Name(s)
}

// walk replaces the strings of a value. The field is that which has the value, as Type.Field.
func (w *walker) walk(v reflect.Value, field string) {
	switch kind := v.Kind(); {
	case kind == reflect.Pointer && !v.IsNil():
		w.walk(v.Elem(), field)
	case kind == reflect.Slice || kind == reflect.Array:
		for i := range v.Len() {
			w.walk(v.Index(i), field)
		}
	case kind == reflect.Struct:
		w.walkStruct(v)
	case kind == reflect.Map:
		w.walkMap(v)
	case field == "Condition.Message" && notice.MatchString(v.String()):
		v.SetString(notice.FindString(v.String()))
	case kind == reflect.String && !isKept(v.Type(), field):
		v.SetString(w.name(v.String()))
	}
}

func (w *walker) walkStruct(v reflect.Value) {
	switch v.Type() {
	case reflect.TypeFor[resource.Quantity](), reflect.TypeFor[metav1.Time](), reflect.TypeFor[metav1.TypeMeta]():
		return
	default:
	}
	for i := range v.NumField() {
		// Most fields are not set.
		if t := v.Type(); t.Field(i).IsExported() && !v.Field(i).IsZero() {
			w.walk(v.Field(i), t.Name()+"."+t.Field(i).Name)
		}
	}
}

func (w *walker) walkMap(v reflect.Value) {
	if all, isText := reflect.TypeAssert[map[string]string](v); isText {
		anonymous := make(map[string]string, len(all))
		for key, value := range all {
			anonymous[w.Name(key)] = w.value(key, value)
		}
		if all != nil {
			v.Set(reflect.ValueOf(anonymous))
		}
		return
	}
	for _, key := range v.MapKeys() {
		value := reflect.New(v.Type().Elem()).Elem()
		value.Set(v.MapIndex(key))
		w.walk(value, "")
		v.SetMapIndex(key, value)
	}
}

// isKept reports whether a field has no names.
func isKept(t reflect.Type, field string) bool {
	if t.PkgPath() != "" && !typesOfNames.Has(t.Name()) {
		// The other types have a few values each, or are names of resources or UIDs.
		return true
	}
	return keptFields.Has(field)
}

// typesOfNames are the types of strings that are names.
var typesOfNames = sets.New(
	"AdmissionCheckReference", "ClusterQueueReference", "CohortReference", "LocalQueueName", "PodSetReference", "ResourceFlavorReference",
	"TopologyReference",
)

// keptFields are those of type string, and structs that contain some, which have words.
var keptFields = sets.New(
	"ObjectMeta.ResourceVersion", "OwnerReference.APIVersion", "OwnerReference.Kind",
	"Condition.Type", "Condition.Reason", "JobCondition.Reason", "NodeCondition.Reason", "PodCondition.Reason", "PodStatus.Reason",
	"JobStatus.CompletedIndexes", "JobStatus.FailedIndexes", "SuccessPolicyRule.SucceededIndexes", "JobSetStatus.TerminalState",
	"JobSpec.ManagedBy", "JobSetSpec.ManagedBy", "FailurePolicyRule.OnJobFailureReasons",
	"WorkloadSchedulingStatsEviction.Reason", "AdmissionCheckParametersReference.APIGroup", "AdmissionCheckParametersReference.Kind",
	"ExactDeviceRequest.DeviceClassName", "DeviceSubRequest.DeviceClassName", "DeviceClassSpec.ExtendedResourceName",
	"Resources.ExcludeResourcePrefixes", "CoStart.Accelerators", "Reservation.After",
)

// value returns the value of a label or an annotation.
func (w *walker) value(key, value string) string {
	switch key {
	case apis.JobUIDLabel, apis.PlanUIDLabel, apis.ExtraLabel, jobset.JobSetUIDKey, "batch.kubernetes.io/controller-uid", "controller-uid",
		apis.DevicesAnnotation, apis.StartedAnnotation, apis.IdleSinceAnnotation, apis.StageAdmissionAnnotation,
		apis.CoStartAnnotation, apis.ReserveAfterAnnotation, apis.MinimumRuntimeAnnotation, apis.PreemptionNoticeAnnotation, apis.CheckpointedAtAnnotation,
		apis.KoordinatorPrefix + "waiting-time", apis.PriorityBoostAnnotation, apis.GangGroupAnnotation:
		// UIDs, times, numbers with a sign or a suffix, and names of resources.
		return value
	case apis.TimelineAnnotation, apis.FinishedStagesAnnotation:
		return w.stagesJSON(value)
	case apis.AdmissionAdditionsAnnotation:
		return w.additionsJSON(value)
	case apis.StartupRulesAnnotation:
		rules := strings.Split(value, ";")
		for i := range rules {
			targets, status, _ := strings.Cut(rules[i], "=")
			rules[i] = w.joined(targets, ",") + "=" + status
		}
		return strings.Join(rules, ";")
	case apis.StageLabel:
		return w.joined(value, ".")
	case apis.FlavorNodeLabelsAnnotation:
		return w.joined(value, ",")
	case apis.PodGroupKey:
		kind, name, _ := strings.Cut(value, ".")
		return kind + "." + w.name(name)
	case apis.AdmissionAnnotation:
		admission, podSet, _ := strings.Cut(value, "/")
		return admission + "/" + w.name(podSet)
	case apis.ClaimTemplatesAnnotation:
		return w.entries(value, func(name, uid string) string { return w.name(name) + "=" + uid })
	case apis.FlavorsAnnotation:
		return w.entries(value, func(place, flavor string) string {
			podSet, resource, _ := strings.Cut(place, "/")
			return w.name(podSet) + "/" + resource + "=" + w.name(flavor)
		})
	}
	return w.text(value)
}

// entries replaces the entries KEY=VALUE of a list that is separated by commas.
func (w *walker) entries(list string, replace func(key, value string) string) string {
	all := strings.Split(list, ",")
	for i := range all {
		key, value, _ := strings.Cut(all[i], "=")
		all[i] = replace(key, value)
	}
	return strings.Join(all, ",")
}

func (w *walker) joined(list, separator string) string {
	all := strings.Split(list, separator)
	for i := range all {
		all[i] = w.name(all[i])
	}
	return strings.Join(all, separator)
}

// token matches the names in text such as "ps=0-3;worker=1,4" or ["ns/name"].
var token = regexp.MustCompile(`[^][{}",;:= \n]+`)

// text replaces the names in the value of a label or an annotation.
func (w *walker) text(value string) string {
	if isWord(value) || w.parts[value] != "" {
		return w.name(value)
	}
	return token.ReplaceAllStringFunc(value, func(name string) string {
		if isWord(name) || indexes.MatchString(name) {
			return name
		}
		return w.joined(name, "/")
	})
}

// additionsJSON replaces all strings in JSON.
func (w *walker) additionsJSON(value string) string {
	var content any
	if json.Unmarshal([]byte(value), &content) != nil {
		return w.text(value)
	}
	anonymous, err := json.Marshal(w.strings(content))
	if err != nil {
		return w.text(value)
	}
	return string(anonymous)
}

func (w *walker) strings(content any) any {
	switch content := content.(type) {
	case string:
		return w.name(content)
	case []any:
		for i := range content {
			content[i] = w.strings(content[i])
		}
	case map[string]any:
		for key := range content {
			content[key] = w.strings(content[key])
		}
	}
	return content
}

// stagesJSON replaces the names of stages in a timeline or a list of finished stages.
func (w *walker) stagesJSON(value string) string {
	var content map[string]any
	if json.Unmarshal([]byte(value), &content) != nil {
		return w.text(value)
	}
	stages, _ := content["stages"].([]any)
	for i := range stages {
		switch stage := stages[i].(type) {
		case string:
			stages[i] = w.joined(stage, ".")
		case map[string]any:
			if name, isName := stage["name"].(string); isName {
				stage["name"] = w.joined(name, ".")
			}
		}
	}
	anonymous, err := json.Marshal(content)
	if err != nil {
		return w.text(value)
	}
	return string(anonymous)
}
