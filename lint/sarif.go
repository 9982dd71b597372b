package lint

import (
	"encoding/json"
	"io"
	"net/url"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

// The part of SARIF 2.1.0 that is written.
type (
	sarifLog struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool       sarifTool     `json:"tool"`
		ColumnKind string        `json:"columnKind"`
		Results    []sarifResult `json:"results"`
	}
	sarifTool struct {
		Driver sarifDriver `json:"driver"`
	}
	sarifDriver struct {
		Name  string      `json:"name"`
		Rules []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID                   string       `json:"id"`
		ShortDescription     sarifMessage `json:"shortDescription"`
		DefaultConfiguration sarifLevel   `json:"defaultConfiguration"`
	}
	sarifLevel struct {
		Level Severity `json:"level"`
	}
	sarifMessage struct {
		Text string `json:"text"`
	}
	sarifResult struct {
		RuleID    string          `json:"ruleId"`
		RuleIndex int             `json:"ruleIndex"`
		Level     Severity        `json:"level"`
		Message   sarifMessage    `json:"message"`
		Locations []sarifLocation `json:"locations"`
		Fixes     []sarifFix      `json:"fixes,omitempty"`
	}
	sarifLocation struct {
		PhysicalLocation sarifPhysical `json:"physicalLocation"`
	}
	sarifPhysical struct {
		ArtifactLocation sarifArtifact `json:"artifactLocation"`
		Region           sarifRegion   `json:"region"`
	}
	sarifArtifact struct {
		URI string `json:"uri"`
	}
	sarifRegion struct {
		StartLine   int `json:"startLine"`
		StartColumn int `json:"startColumn"`
		EndColumn   int `json:"endColumn,omitempty"`
	}
	sarifFix struct {
		Description     sarifMessage  `json:"description"`
		ArtifactChanges []sarifChange `json:"artifactChanges"`
	}
	sarifChange struct {
		ArtifactLocation sarifArtifact      `json:"artifactLocation"`
		Replacements     []sarifReplacement `json:"replacements"`
	}
	sarifReplacement struct {
		DeletedRegion   sarifRegion  `json:"deletedRegion"`
		InsertedContent sarifMessage `json:"insertedContent"`
	}
)

// WriteSARIF writes SARIF 2.1.0.
func WriteSARIF(w io.Writer, result *Result) error {
	run := sarifRun{Tool: sarifTool{sarifDriver{Name: "tranche lint"}}, ColumnKind: "unicodeCodePoints", Results: []sarifResult{}}
	index := map[string]int{}
	for i, r := range Rules() {
		index[r.ID] = i
		run.Tool.Driver.Rules = append(run.Tool.Driver.Rules, sarifRule{ID: r.ID, ShortDescription: sarifMessage{r.Text}, DefaultConfiguration: sarifLevel{r.Severity}})
	}
	for i := range result.Findings {
		f := &result.Findings[i]
		artifact := sarifArtifact{uriOf(f.File)}
		run.Results = append(run.Results, sarifResult{
			RuleID: f.Rule, RuleIndex: index[f.Rule], Level: f.Severity, Message: sarifMessage{f.text()},
			Locations: []sarifLocation{{sarifPhysical{artifact, sarifRegion{StartLine: f.Line, StartColumn: f.Column}}}}, Fixes: fixesOf(f, artifact),
		})
	}
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(sarifLog{"https://json.schemastore.org/sarif-2.1.0.json", "2.1.0", []sarifRun{run}})
}

// uriOf returns the URI of a file: a relative one of a relative path.
func uriOf(file string) string {
	uri := url.URL{Path: filepath.ToSlash(file)}
	if filepath.IsAbs(file) {
		uri.Scheme = "file"
	}
	return uri.String()
}

func fixesOf(f *Finding, artifact sarifArtifact) []sarifFix {
	if len(f.Edits) == 0 {
		return nil
	}
	change := sarifChange{ArtifactLocation: artifact}
	for _, e := range f.Edits {
		change.Replacements = append(change.Replacements, sarifReplacement{
			sarifRegion{e.Line, e.Column, e.Column + utf8.RuneCountInString(e.Old)}, sarifMessage{e.New},
		})
	}
	description, _, _ := strings.Cut(f.Cure, "; ")
	return []sarifFix{{sarifMessage{description}, []sarifChange{change}}}
}
