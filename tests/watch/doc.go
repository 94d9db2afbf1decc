// Package watch tests carillon watch and carillon status on a real job of four processes that is held up, and goes on.
package watch
