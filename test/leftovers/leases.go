package leftovers

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
)

// addLeases records the agent's addresses that are not free.
func (s *Snapshot) addLeases(ctx context.Context, socket string) error {
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("read leases: %w", err)
	}
	defer conn.Close()
	reply, err := operatorv1.NewOperationsClient(conn).Addresses(ctx, &operatorv1.AddressesRequest{})
	if err != nil {
		return fmt.Errorf("read leases: %w", err)
	}
	for _, l := range reply.Leases {
		if l.State == "cooling" {
			s.Cooling = append(s.Cooling, l.Address)
			continue
		}
		s.add("lease", l.Pool, "%s %s %s", l.Address, l.State, l.Holder)
	}
	return nil
}
