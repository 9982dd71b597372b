package metrics

import "github.com/prometheus/client_golang/prometheus"

// crdVectors is the metric of the CRD of JobSets. Every replica reports it.
type crdVectors struct{ fieldsMissing *prometheus.GaugeVec }

func newCRDVectors(all *catalogue) crdVectors {
	c := crdVectors{prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "tranche_jobset_fields_missing",
		Help: "Number of fields of Tranche that the CRD of JobSets lacks because another one was applied over Tranche's. 0 if the cluster never had Tranche's CRD.",
	}, []string{"replica_role"})}
	*all = append(*all, c.fieldsMissing)
	return c
}

// JobSetFieldsMissing records how many fields the CRD of JobSets lacks.
func (m *Metrics) JobSetFieldsMissing(fields int) {
	m.fieldsMissing.WithLabelValues(m.replica.role()).Set(float64(fields))
}
