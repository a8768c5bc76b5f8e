// Package devicemanager gives memif sockets to pods as devices of kubelet's, and keeps account of who has which.
package devicemanager
