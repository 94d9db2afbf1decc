// Package etcd tests the rendezvous through a real etcd.
package etcd
