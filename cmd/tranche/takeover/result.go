package takeover

import (
	"errors"
	"fmt"
	"io"
	"strings"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
)

// A Plan is what a verb changes in ClusterQueues, and the result. It is the output in JSON.
type Plan struct {
	// Engine is the one that admits afterwards: Tranche or Kueue.
	Engine string `json:"engine"`
	// ClusterQueues are those that the user names, in the order of their names.
	ClusterQueues []Change `json:"clusterQueues"`
	// Obstacles stand in the way, each with its cure. Nothing changes while there are any.
	Obstacles []string `json:"obstacles,omitempty"`
	// Warnings are what the user has to check.
	Warnings []string `json:"warnings,omitempty"`
	// Unsupported are the Workloads in the ClusterQueues that Tranche does not admit.
	Unsupported []Unsupported `json:"unsupported,omitempty"`
	// Differences are what will differ from the engine that admits now.
	Differences []string `json:"differences,omitempty"`
	Result      Result   `json:"result"`
	// Message is the error behind the results Blocked and Unfinished, with the cure.
	Message string `json:"message,omitempty"`
}

// A Change is what changes in one ClusterQueue. Without annotations and a policy, it stays as it is.
type Change struct {
	Name string `json:"name"`
	// Annotations have null for each annotation that is removed.
	Annotations map[string]*string `json:"annotations,omitempty"`
	StopPolicy  kueue.StopPolicy   `json:"stopPolicy,omitempty"`
}

// A Result is how far a verb has come.
type Result string

const (
	// Possible is the result of --dry-run without obstacles.
	Possible Result = "Possible"
	// Blocked is the result with obstacles. Nothing has changed.
	Blocked Result = "Blocked"
	// Done is the result if the engine admits.
	Done Result = "Done"
	// Unfinished is the result of an error while the ClusterQueues changed. They may be held.
	Unfinished Result = "Unfinished"
)

// block sets the result of a plan that is not carried out yet, and returns an error if it cannot be.
func (p *Plan) block() error {
	p.Result = Possible
	if len(p.Obstacles) == 0 {
		return nil
	}
	p.Result, p.Message = Blocked, "the obstacles stand in the way: nothing has changed"
	return errors.New("what is listed above stands in the way")
}

// finish sets the result of a plan that was carried out.
func (p *Plan) finish(err error) error {
	p.Result = Done
	if err != nil {
		p.Result, p.Message = Unfinished, err.Error()
	}
	return err
}

// writeText prints a plan for users.
func (p *Plan) writeText(out io.Writer) error {
	var text strings.Builder
	if p.Result == Blocked {
		for _, obstacle := range p.Obstacles {
			text.WriteString("- " + obstacle + "\n")
		}
		_, err := io.WriteString(out, text.String())
		return err
	}
	fmt.Fprintf(&text, "%s will admit instead of %s in:\n", p.Engine, otherEngine(p.Engine))
	for i := range p.ClusterQueues {
		text.WriteString("- " + p.ClusterQueues[i].text() + "\n")
	}
	for _, warning := range p.Warnings {
		text.WriteString(warning + "\n")
	}
	text.WriteString("What runs goes on, and what waits keeps its place. What will differ:\n")
	for _, line := range p.Differences {
		text.WriteString("- " + line + "\n")
	}
	writeUnsupported(&text, p.Unsupported)
	_, err := io.WriteString(out, text.String())
	return err
}

// text returns a change for users.
func (c *Change) text() string {
	if c.StopPolicy == "" {
		return fmt.Sprintf("ClusterQueue %s: is Kueue's already, and stays as it is", c.Name)
	}
	text := fmt.Sprintf("ClusterQueue %s: ", c.Name)
	if engine := c.Annotations[apis.EngineAnnotation]; engine != nil {
		text += fmt.Sprintf("annotation %s: %s, spec.stopPolicy: %s", apis.EngineAnnotation, *engine, c.StopPolicy)
		if policy := c.Annotations[apis.StopPolicyAnnotation]; policy != nil {
			text += fmt.Sprintf(", and annotation %s: %s, because it is held", apis.StopPolicyAnnotation, *policy)
		}
		return text
	}
	text += fmt.Sprintf("no annotation %s, spec.stopPolicy: %s", apis.EngineAnnotation, c.StopPolicy)
	if c.StopPolicy == kueue.Hold {
		text += ", because it is held for Tranche"
	}
	return text
}

func otherEngine(engine string) string {
	if engine == apis.EngineTranche {
		return apis.EngineKueue
	}
	return apis.EngineTranche
}

// changed returns the names of the ClusterQueues that change.
func (p *Plan) changed() []string {
	var names []string
	for i := range p.ClusterQueues {
		if p.ClusterQueues[i].StopPolicy != "" {
			names = append(names, p.ClusterQueues[i].Name)
		}
	}
	return names
}
