package apis

// FinishedStages is the content of FinishedStagesAnnotation.
type FinishedStages struct {
	// Attempt is the value of status.restarts of the JobSet for which the stages count.
	Attempt int32 `json:"attempt"`
	// Stages has the names of the stages, in the order of the plan.
	Stages []string `json:"stages"`
}
