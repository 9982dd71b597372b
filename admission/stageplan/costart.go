package stageplan

// StartedBy returns the stages that need nothing more than that the given launchers become ready: each of their conditions is Ready of a
// launcher, of a stage that runs or of another of these stages, or is met because its stage has finished; and at least one is Ready of a
// launcher or of another of these stages. The arguments have a value for each stage. Stages that run or have finished are left out.
func (p *Plan) StartedBy(launchers, running, finished []bool) []int {
	isStarted := make([]bool, len(p.Stages))
	var started []int
	for s := range p.Stages {
		if running[s] || finished[s] || launchers[s] {
			continue
		}
		byLauncher, isMet := false, true
		for _, c := range p.Stages[s].After {
			launches := c.Status == Ready && (launchers[c.Stage] || isStarted[c.Stage])
			byLauncher = byLauncher || launches
			isMet = isMet && (launches || finished[c.Stage] || c.Status == Ready && running[c.Stage])
		}
		if byLauncher && isMet {
			isStarted[s] = true
			started = append(started, s)
		}
	}
	return started
}

// OpensByReady reports whether a condition of another stage is Ready of a stage.
func (p *Plan) OpensByReady(stage int) bool {
	for s := stage + 1; s < len(p.Stages); s++ {
		for _, c := range p.Stages[s].After {
			if c.Stage == stage && c.Status == Ready {
				return true
			}
		}
	}
	return false
}
