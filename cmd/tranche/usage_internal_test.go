package main

import (
	"bytes"
	"context"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/tranche-dev/tranche/cmd/tranche/exitcode"
)

// world is a recorded snapshot, and changed a change of its queues.
const (
	world   = "../../plan/testdata/quota-raised/snapshot"
	changed = "../../plan/testdata/quota-raised/queues.yaml"
)

// runVerb runs the program, and returns its output, its error and its exit code.
func runVerb(ctx context.Context, stdin io.Reader, args ...string) (out string, code int, err error) {
	var text bytes.Buffer
	cmd := newCommand()
	cmd.SetArgs(args)
	cmd.SetIn(stdin)
	cmd.SetOut(&text)
	cmd.SetErr(io.Discard)
	if err = execute(ctx, cmd); err != nil {
		code = exitcode.Of(err)
	}
	return text.String(), code, err
}

// TestUsage makes mistakes in the arguments of every verb. The exit code is that of the help, and the error names the flag or the argument.
func TestUsage(t *testing.T) {
	const anyVerb = 2
	nowhere := filepath.Join(t.TempDir(), "nowhere")
	for line, c := range map[string]struct {
		code int
		want string
	}{
		"nothing":                             {anyVerb, `unknown command "nothing" for "tranche"; see tranche --help`},
		"lnt":                                 {anyVerb, "Did you mean this?\n\tlint\nsee tranche --help"},
		"--wide":                              {anyVerb, "unknown flag: --wide; see tranche --help"},
		"manager --wide":                      {anyVerb, "unknown flag: --wide; see tranche manager --help"},
		"manager now":                         {anyVerb, "now"},
		"barrier --wide":                      {anyVerb, "--wide"},
		"barrier now":                         {anyVerb, "now"},
		"barrier --timeout soon":              {anyVerb, "--timeout"},
		"dashboard --wide":                    {anyVerb, "--wide"},
		"dashboard now":                       {anyVerb, "now"},
		"dashboard --port 70000":              {anyVerb, "--port is 70000"},
		"shadow --wide":                       {anyVerb, "--wide"},
		"shadow now":                          {anyVerb, "now"},
		"shadow -o xml":                       {anyVerb, "must be one of text, wide, json, yaml"},
		"shadow --for -1s":                    {anyVerb, "--for is -1s"},
		"shadow":                              {anyVerb, "no configuration has been provided: name a file with --kubeconfig or $KUBECONFIG"},
		"dashboard":                           {anyVerb, "no configuration has been provided"},
		"uninstall":                           {anyVerb, "no configuration has been provided"},
		"snapshot -o " + nowhere:              {anyVerb, "no configuration has been provided"},
		"explain jobset/ --snapshot " + world: {anyVerb, `"jobset/" names no object: write NAME, or KIND/NAME as in jobset/train`},
		"shadow --audit-log " + nowhere:       {anyVerb, nowhere},
		"takeover":                            {anyVerb, "requires at least 1 arg"},
		"takeover q --wide":                   {anyVerb, "--wide"},
		"takeover q -o wide":                  {anyVerb, "must be one of text, json, yaml"},
		"takeover q -o json":                  {anyVerb, "with -o json the command does not ask: add --yes"},
		"takeover q --timeout 0s":             {anyVerb, "--timeout is 0s, must be positive"},
		"takeover q --yes":                    {anyVerb, "no configuration has been provided"},
		"hand-back q -o yaml":                 {anyVerb, "with -o yaml the command does not ask: add --yes"},
		"hand-back":                           {anyVerb, "requires at least 1 arg"},
		"version --wide":                      {anyVerb, "--wide"},
		"version now":                         {anyVerb, "now"},
		"uninstall --wide":                    {anyVerb, "--wide"},
		"uninstall now":                       {anyVerb, "now"},
		"simulate":                            {anyVerb, "name the file of a scenario, or a trace with --trace"},
		"simulate --wide x":                   {anyVerb, "--wide"},
		"simulate " + nowhere:                 {anyVerb, nowhere},
		"snapshot --wide":                     {anyVerb, "--wide"},
		"snapshot now":                        {anyVerb, "now"},
		"snapshot --config-map x":             {anyVerb, "--config-map"},
		"snapshot -o .":                       {anyVerb, "exists"},
		"lint":                                {anyVerb, "name a file or a directory with manifests; see tranche lint --help"},
		"lint --wide":                         {anyVerb, "--wide"},
		"lint " + nowhere:                     {anyVerb, nowhere},
		"lint -f x -o xml":                    {anyVerb, `"-o, --output" flag: must be one of text, json, yaml, sarif, github`},
		"lint -f " + nowhere:                  {anyVerb, nowhere},
		"explain":                             {anyVerb, "accepts 1 arg(s), received 0; see tranche explain --help"},
		"explain a b":                         {anyVerb, "accepts 1 arg(s), received 2"},
		"explain a --wide":                    {anyVerb, "--wide"},
		"explain a -o markdown":               {anyVerb, "must be one of text, wide, json, yaml"},
		"explain a --until 0s":                {anyVerb, "--until is 0s"},
		"explain a --until soon":              {anyVerb, "--until"},
		"explain a -w --interval 1":           {anyVerb, "--interval"},
		"explain a":                           {anyVerb, "no configuration has been provided"}, // the default kubeconfig does not exist
		"explain a -w --interval 1ms --snapshot " + world:         {anyVerb, "[snapshot watch]"},
		"explain a --snapshot " + world + " --kubeconfig x":       {anyVerb, "[snapshot kubeconfig]"},
		"explain a --snapshot " + nowhere:                         {anyVerb, nowhere},
		"explain a --kubeconfig " + nowhere:                       {anyVerb, nowhere},
		"explain nothing --snapshot " + world:                     {anyVerb, `no JobSet, Job or quota Workload "nothing"`},
		"pending now":                                             {anyVerb, "now"},
		"pending --wide":                                          {anyVerb, "--wide"},
		"pending -o xml":                                          {anyVerb, "must be one of text, wide, json, yaml"},
		"pending --queue a --cluster-queue b":                     {anyVerb, "[cluster-queue queue]"},
		"pending -n a --cluster-queue b":                          {anyVerb, "[cluster-queue namespace]"},
		"pending --snapshot x --watch":                            {anyVerb, "[snapshot watch]"},
		"pending --snapshot x --limit 1":                          {anyVerb, "[snapshot limit]"},
		"pending --limit -1 --kubeconfig x":                       {anyVerb, "--limit is -1"},
		"pending --offset -1 --kubeconfig x":                      {anyVerb, "--offset is -1"},
		"pending --limit many":                                    {anyVerb, "--limit"},
		"pending --watch --interval 1ms":                          {anyVerb, "--interval is 1ms"},
		"pending --until -1s --snapshot " + world:                 {anyVerb, "--until is -1s"},
		"pending --snapshot " + nowhere:                           {anyVerb, nowhere},
		"pending --kubeconfig " + nowhere:                         {anyVerb, nowhere},
		"pending --cluster-queue x --snapshot " + world:           {anyVerb, `no ClusterQueue "x"`},
		"pending --queue x -n default --snapshot " + world:        {anyVerb, `no LocalQueue "x"`},
		"pending -n x --snapshot " + world:                        {anyVerb, `no namespace "x"`},
		"plan":                                                    {1, "name a file or a directory with manifests; see tranche plan --help"},
		"plan --wide":                                             {1, "--wide"},
		"plan " + nowhere + " --snapshot " + world:                {1, nowhere},
		"plan -f x -o sarif":                                      {1, "must be one of text, wide, markdown, json, yaml"},
		"plan -f x --until soon":                                  {1, "--until"},
		"plan -f x --until 0s --snapshot " + world:                {1, "--until is 0s"},
		"plan -f x --config-map x":                                {1, "--config-map"},
		"plan -f x --kubeconfig x --snapshot x":                   {1, "[snapshot kubeconfig]"},
		"plan -f " + nowhere + " --snapshot " + world:             {1, nowhere},
		"plan -f " + changed + " --snapshot " + nowhere:           {1, nowhere},
		"plan -f " + changed + " --kubeconfig " + nowhere:         {1, nowhere},
		"plan - --snapshot -":                                     {1, "standard input"},
		"plan - -f -":                                             {1, "standard input"},
		"plan -f - --snapshot -":                                  {1, "standard input"},
		"what-if":                                                 {1, "name a question: submit, quota or node-loss"},
		"what-if nothing":                                         {1, `unknown command "nothing" for "tranche what-if"; see tranche what-if --help`},
		"what-if nothing --snapshot " + world:                     {1, `unknown command "nothing" for "tranche what-if"; see tranche what-if --help`},
		"what-if --snapshot " + world:                             {1, "name a question: submit, quota or node-loss"},
		"what-if submit":                                          {1, "name a file or a directory with manifests; see tranche what-if submit --help"},
		"what-if submit --wide":                                   {1, "--wide"},
		"what-if submit " + nowhere + " --snapshot " + world:      {1, nowhere},
		"what-if submit -f " + changed + " --snapshot " + nowhere: {1, nowhere},
		"what-if quota":                                           {1, "requires at least 1 arg(s)"},
		"what-if quota --wide":                                    {1, "--wide"},
		"what-if quota a/b=1":                                     {1, "write CLUSTERQUEUE/FLAVOR/RESOURCE=AMOUNT"},
		"what-if quota a/b/c=many":                                {1, `the amount "many"`},
		"what-if quota a/b/c=1 --snapshot " + world:               {1, `ClusterQueue "a" does not exist`},
		"what-if node-loss":                                       {1, `"selector"`},
		"what-if node-loss --wide":                                {1, "--wide"},
		"what-if node-loss -l a==b==c":                            {1, "--selector"},
		"what-if node-loss -l a=b --snapshot " + world:            {1, "no node of the snapshot has labels"},
	} {
		t.Run(line, func(t *testing.T) {
			t.Setenv("KUBECONFIG", "nowhere.kubeconfig")
			_, code, err := runVerb(t.Context(), strings.NewReader(""), strings.Fields(line)...)
			if code != c.code || err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("exit code %d, error %v, want %d and %q", code, err, c.code, c.want)
			}
		})
	}
}

// TestHelp: the help of each verb names its exit codes, and has an example.
func TestHelp(t *testing.T) {
	var check func(cmd *cobra.Command)
	check = func(cmd *cobra.Command) {
		for _, child := range cmd.Commands() {
			check(child)
		}
		if cmd.HasParent() && !strings.Contains(cmd.Long, "Exit code") {
			t.Errorf("%s: the help does not name the exit codes", cmd.CommandPath())
		}
		if cmd.HasParent() && !cmd.HasSubCommands() && cmd.Name() != "version" && !strings.Contains(cmd.Example, cmd.CommandPath()) {
			t.Errorf("%s: the help has no example", cmd.CommandPath())
		}
	}
	check(newCommand())
}
