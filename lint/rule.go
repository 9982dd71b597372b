package lint

// A rule is something that is checked.
type rule struct {
	id       string
	severity Severity
	text     string
}

// Rules about text.
func ruleUnreadable() rule {
	return rule{"unreadable", Error, "all text is readable: YAML or JSON, with apiVersion and kind"}
}

// Rules that the API server enforces.
func ruleUnknownKind() rule {
	return rule{"unknown-kind", Error, "the CRDs of this version have the kind"}
}

func ruleOldVersion() rule {
	return rule{"old-version", Error, "objects of Kueue are written in kueue.x-k8s.io/v1beta2"}
}

func ruleDeprecatedVersion() rule {
	return rule{"deprecated-version", Warning, "ResourceFlavors, Topologies and WorkloadPriorityClasses are written in kueue.x-k8s.io/v1beta2, although v1beta1 is still served"}
}

func ruleUnknownField() rule {
	return rule{"unknown-field", Error, "the schema of the kind has each field"}
}

func ruleDuplicateField() rule {
	return rule{"duplicate-field", Error, "no field is written twice"}
}

func ruleSchema() rule {
	return rule{"schema", Error, "values pass the schema and the CEL rules of the CRD, and metadata is valid"}
}

func ruleDuplicate() rule {
	return rule{"duplicate-object", Error, "no two objects have the same kind, namespace and name"}
}

// Rules that the admission policies of Tranche enforce.
func rulePolicy() rule {
	return rule{"policy", Error, "the admission policies of Tranche accept the creation of the object"}
}

func rulePodPolicy() rule {
	return rule{"pod-policy", Error, "the admission policies of Tranche accept the pods of a Deployment, StatefulSet, ReplicaSet, ReplicationController or DaemonSet"}
}

// Rules that the webhook of the JobSet controller enforces.
func ruleJobSetWebhook() rule {
	return rule{"jobset-webhook", Error, "the webhook of the JobSet controller 0.12.0 accepts the creation of JobSets, with its default feature gates"}
}

// Rules of the engine.
func ruleInactiveQueue() rule {
	return rule{"inactive-queue", Error, "ClusterQueues are active: their flavors and AdmissionChecks exist and are supported, and Cohorts form no cycle"}
}

func ruleStoppedQueue() rule {
	return rule{"stopped-queue", Warning, "no queue is stopped"}
}

func ruleMissingQueue() rule {
	return rule{"missing-queue", Error, "the queue that a LocalQueue, a JobSet, a Job, a CronJob, a pod or a pod template names exists"}
}

func ruleMissingPriorityClass() rule {
	return rule{"missing-priority-class", Error, "the WorkloadPriorityClass that a queued JobSet, Job, CronJob, pod or pod template names exists"}
}

func rulePlan() rule {
	return rule{"plan", Error, "JobSets have a stage plan: names, rules and dependsOn are consistent"}
}

func ruleNeverFits() rule {
	return rule{"never-fits", Error, "the engine admits each stage of a JobSet, and each queued Job or pod, when nothing else runs"}
}

func ruleUnsupportedTopology() rule {
	return rule{"unsupported-topology", Error, "only in the mode Beside do queued JobSets, Jobs and pods ask for a topology"}
}

// Rules about what is accepted without effect.
func ruleUnmatchedFlavor() rule {
	return rule{"unmatched-flavor", Warning, "a node has the labels of each flavor, if nodes are given"}
}

func ruleUnusedFlavor() rule {
	return rule{"unused-flavor", Warning, "a ClusterQueue or a Cohort has quota of each flavor"}
}

func ruleUnreachableQuota() rule {
	return rule{"unreachable-quota", Warning, "a LocalQueue of a selected namespace leads to each ClusterQueue with quota that no other queue can borrow, and a queue can borrow what Cohorts have"}
}

func ruleBorrowingLimit() rule {
	return rule{"borrowing-limit", Warning, "the other members of the Cohort lend as much as borrowingLimit allows to borrow"}
}

func ruleLendingLimit() rule {
	return rule{"lending-limit", Warning, "lendingLimit has an effect"}
}

func ruleZeroWeight() rule {
	return rule{"zero-weight", Warning, "weights of fair sharing are above 0"}
}

func ruleUselessPreemption() rule {
	return rule{"useless-preemption", Warning, "preemption policies have an effect"}
}

func ruleIgnoredAnnotation() rule {
	return rule{"ignored-annotation", Warning, "only in the mode Beside do ClusterQueues have annotations about takeovers from Kueue"}
}

func ruleUnqueuedKind() rule {
	return rule{"unqueued-kind", Warning, "only in the mode Beside do objects of kinds that Tranche does not queue name a queue"}
}

func ruleSuspended() rule {
	return rule{"suspended", Warning, "manifests of queued JobSets and Jobs leave out spec.suspend: they are created suspended"}
}

// rules lists all rules, in the order in which documents describe them.
func rules() []rule {
	return []rule{
		ruleUnreadable(), ruleUnknownKind(), ruleOldVersion(), ruleDeprecatedVersion(), ruleUnknownField(), ruleDuplicateField(), ruleSchema(), ruleDuplicate(), rulePolicy(), rulePodPolicy(), ruleJobSetWebhook(), ruleInactiveQueue(),
		ruleStoppedQueue(), ruleMissingQueue(), ruleMissingPriorityClass(), rulePlan(), ruleNeverFits(), ruleUnsupportedTopology(), ruleUnmatchedFlavor(), ruleUnusedFlavor(), ruleUnreachableQuota(),
		ruleBorrowingLimit(), ruleLendingLimit(), ruleZeroWeight(), ruleUselessPreemption(), ruleIgnoredAnnotation(), ruleUnqueuedKind(), ruleSuspended(),
	}
}

// A Rule describes what is checked.
type Rule struct {
	ID       string
	Severity Severity
	// Text says what holds if there is no finding.
	Text string
}

// Rules lists all rules.
func Rules() []Rule {
	var all []Rule
	for _, r := range rules() {
		all = append(all, Rule{ID: r.id, Severity: r.severity, Text: r.text})
	}
	return all
}
