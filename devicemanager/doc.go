// Package devicemanager gives memif sockets to pods as devices of kubelet's, and records which container has which.
package devicemanager
