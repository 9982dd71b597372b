package snapshot

import (
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sjson "sigs.k8s.io/json"
)

const (
	// APIVersion is the version of the format. A reader of another version cannot read the files.
	APIVersion = "snapshot.tranche.dev/v1alpha1"

	metadataKind = "Snapshot"
	metadataFile = "snapshot.json"
	configFile   = "configuration.yaml"
	fileSuffix   = ".jsonl"
	takeAgain    = "take the snapshot again"
)

// metadata is the content of the file snapshot.json. It is written last, so that a snapshot with the file is complete.
type metadata struct {
	metav1.TypeMeta `json:",inline"`

	TakenAt metav1.MicroTime `json:"takenAt"`
	// Version is the version of Tranche that took the snapshot.
	Version    string   `json:"version,omitempty"`
	Anonymized bool     `json:"anonymized,omitempty"`
	Namespaces []string `json:"namespaces,omitempty"`
	// Files are those of the snapshot, without this one.
	Files []fileEntry `json:"files"`
	Gaps  []Gap       `json:"gaps,omitempty"`
}

// A fileEntry describes a file of a snapshot.
type fileEntry struct {
	Name string `json:"name"`
	// Objects is how many objects the file has.
	Objects int `json:"objects"`
}

// decodeMetadata checks the version first, so that a later format gets one error.
func decodeMetadata(content []byte) (*metadata, error) {
	var header metav1.TypeMeta
	if err := json.Unmarshal(content, &header); err != nil {
		return nil, fmt.Errorf("%s: %w: the file is damaged; %s", metadataFile, err, takeAgain)
	}
	if header.APIVersion != APIVersion || header.Kind != metadataKind {
		return nil, fmt.Errorf("%s: the format is %q of %q, this version of Tranche reads %q of %q: use the version of Tranche that took the snapshot, or %s",
			metadataFile, header.Kind, header.APIVersion, metadataKind, APIVersion, takeAgain)
	}
	m := &metadata{}
	strict, err := k8sjson.UnmarshalStrict(content, m)
	if err == nil && len(strict) > 0 {
		err = strict[0]
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", metadataFile, err, takeAgain)
	}
	return m, nil
}
