package visibility

import (
	"net/url"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	visibility "sigs.k8s.io/kueue/apis/visibility/v1beta2"

	"github.com/tranche-dev/tranche/admission"
)

// TestQuestions parses queries as the server does.
func TestQuestions(t *testing.T) {
	scheme, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	codec := runtime.NewParameterCodec(scheme)
	for name, tc := range map[string]struct {
		query, namespace string
		wantPage         admission.Page
		wantOnly         types.NamespacedName
		wantErr          string
	}{
		"nothing":               {wantPage: admission.Page{Limit: 1000}},
		"a page":                {query: "limit=5&offset=7", wantPage: admission.Page{Offset: 7, Limit: 5}},
		"no limit as in Kueue":  {query: "limit=0", wantPage: admission.Page{Limit: 1000}},
		"the most":              {query: "limit=10000", wantPage: admission.Page{Limit: 10000}},
		"what others ask for":   {query: "pretty=true", wantPage: admission.Page{Limit: 1000}},
		"negative limit":        {query: "limit=-1", wantErr: `limit: "-1" must be a whole number of 0 or more`},
		"negative offset":       {query: "offset=-1", wantErr: `offset: "-1" must be a whole number of 0 or more`},
		"no number":             {query: "offset=x", wantErr: `offset: "x" must be a whole number of 0 or more`},
		"too large for numbers": {query: "limit=99999999999999999999", wantErr: "limit: "},
		"too many":              {query: "limit=10001", wantErr: "limit: 10001 must be at most 10000"},
		"one of a LocalQueue":   {query: "fieldSelector=metadata.name=w", namespace: "ns", wantOnly: types.NamespacedName{Namespace: "ns", Name: "w"}, wantPage: admission.Page{Limit: 1000}},
		"one of a ClusterQueue": {
			query: "fieldSelector=metadata.namespace%3D%3Dns,metadata.name=w", wantOnly: types.NamespacedName{Namespace: "ns", Name: "w"}, wantPage: admission.Page{Limit: 1000},
		},
		"no namespace":      {query: "fieldSelector=metadata.name=w", wantErr: "metadata.namespace for a ClusterQueue"},
		"another namespace": {query: "fieldSelector=metadata.name=w,metadata.namespace=other", namespace: "ns", wantErr: `but the LocalQueue is in namespace "ns"`},
		"another field":     {query: "fieldSelector=spec.active=true", namespace: "ns", wantErr: `the field is "spec.active", but must be metadata.name`},
		"another operator":  {query: "fieldSelector=metadata.name!=w", namespace: "ns", wantErr: "the operator must be ="},
		"no selector":       {query: "fieldSelector=w", namespace: "ns", wantErr: "fieldSelector: invalid selector"},
	} {
		t.Run(name, func(t *testing.T) {
			values, err := url.ParseQuery(tc.query)
			if err != nil {
				t.Fatal(err)
			}
			options, _, _ := pendingWorkloads{}.NewGetOptions()
			q, _ := options.(*question)
			err = codec.DecodeParameters(values, visibility.SchemeGroupVersion, q)
			var page admission.Page
			var only types.NamespacedName
			if err == nil {
				page, err = q.page()
			}
			if err == nil {
				only, _, err = q.only(tc.namespace)
			}
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Errorf("error %v, want one with %q", err, tc.wantErr)
				}
				return
			}
			if err != nil || page != tc.wantPage || only != tc.wantOnly {
				t.Errorf("got %+v, %v, %v", page, only, err)
			}
		})
	}
}
