package fairshare_test

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/admission/fairshare"
	"github.com/tranche-dev/tranche/admission/quota"
)

// BenchmarkContest admits one head after the other from one Cohort; each ClusterQueue has the next one at once.
func BenchmarkContest(b *testing.B) {
	for _, queues := range []int{10, 100, 1000, 10000} {
		b.Run(fmt.Sprintf("queues=%d", queues), func(b *testing.B) {
			tree := quota.NewTree()
			for _, fr := range names {
				tree.Index.ID(fr)
			}
			root := tree.AddCohort("root")
			tournament := fairshare.NewTournament(fairshare.NewMeter(tree))
			heads := map[*quota.Node]fairshare.Head{}
			for i := range queues {
				q := tree.AddClusterQueue(fmt.Sprint(i))
				tree.SetParent(q, root)
				tree.SetQuotas(q, map[quota.ID]quota.Quota{0: {Nominal: 5, BorrowingLimit: unlimited, LendingLimit: unlimited}})
				heads[q] = fairshare.Head{UID: types.UID(q.Name), Since: time.Unix(int64(i), 0), Usage: quota.Usage{{ID: 0, Amount: quota.Amount(1 + i%3)}}}
			}
			for q, head := range heads {
				tournament.Enter(q, head)
			}
			b.ReportAllocs()
			for b.Loop() {
				q, _ := tournament.First(root)
				q.Charge(heads[q].Usage)
				tournament.Enter(q, heads[q])
			}
		})
	}
}
