// Package etcd tests the rendezvous in a real etcd.
package etcd
