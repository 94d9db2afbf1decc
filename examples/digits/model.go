package main

import (
	"math"
	"math/rand/v2"
	"slices"
)

const hidden = 32

// model is a perceptron with one hidden layer: 64 pixels → 32 rectified units → 10 scores.
//
// All parameters are in one vector, and so are their gradients, so that a single all-reduce carries all gradients.
type model struct {
	params []float32
	layers
}

// layers are views into a vector of parameters, or of gradients.
type layers struct {
	w1 []float32 // [hidden][pixels]
	b1 []float32 // [hidden]
	w2 []float32 // [classes][hidden]
	b2 []float32 // [classes]
}

const numParams = hidden*pixels + hidden + classes*hidden + classes

func layersOf(v []float32) layers {
	cut := func(n int) []float32 {
		head := v[:n:n]
		v = v[n:]
		return head
	}
	return layers{w1: cut(hidden * pixels), b1: cut(hidden), w2: cut(classes * hidden), b2: cut(classes)}
}

// newModel returns a model with random weights, the same for the same seed (He's initialisation).
func newModel(seed uint64) *model {
	m := &model{params: make([]float32, numParams)}
	m.layers = layersOf(m.params)
	random := rand.New(rand.NewPCG(seed, 0))
	fill := func(w []float32, inputs float64) {
		for i := range w {
			w[i] = float32(random.NormFloat64() * math.Sqrt(2/inputs))
		}
	}
	fill(m.w1, pixels)
	fill(m.w2, hidden)
	return m
}

// activations are the values that the model computes for one sample.
type activations struct {
	hidden [hidden]float32
	probs  [classes]float32
}

func (m *model) forward(s *sample, a *activations) {
	for i := range a.hidden {
		a.hidden[i] = max(0, m.b1[i]+dot(m.w1[i*pixels:(i+1)*pixels], s.pixels[:]))
	}
	highest := float32(math.Inf(-1))
	for i := range a.probs {
		a.probs[i] = m.b2[i] + dot(m.w2[i*hidden:(i+1)*hidden], a.hidden[:])
		highest = max(highest, a.probs[i])
	}
	var sum float32
	for i, score := range a.probs {
		a.probs[i] = float32(math.Exp(float64(score - highest)))
		sum += a.probs[i]
	}
	for i := range a.probs {
		a.probs[i] /= sum
	}
}

func (a *activations) guess() int {
	return slices.Index(a.probs[:], slices.Max(a.probs[:]))
}

// addGradient adds weight times the gradient of a sample's loss to grad, and returns the loss, which is the
// cross-entropy of the true digit.
func (m *model) addGradient(s *sample, weight float32, grad layers, a *activations) float32 {
	m.forward(s, a)

	var back [hidden]float32
	for c, p := range a.probs {
		if c == s.digit {
			p--
		}
		p *= weight
		grad.b2[c] += p
		addScaled(grad.w2[c*hidden:(c+1)*hidden], a.hidden[:], p)
		addScaled(back[:], m.w2[c*hidden:(c+1)*hidden], p)
	}
	for i, g := range back {
		if a.hidden[i] == 0 { // the unit was cut off, and with it the gradient
			continue
		}
		grad.b1[i] += g
		addScaled(grad.w1[i*pixels:(i+1)*pixels], s.pixels[:], g)
	}
	return -float32(math.Log(max(float64(a.probs[s.digit]), 1e-30)))
}

func dot(a, b []float32) (sum float32) {
	b = b[:len(a)]
	for i, x := range a {
		sum += x * b[i]
	}
	return sum
}

func addScaled(y, x []float32, f float32) {
	x = x[:len(y)]
	for i := range y {
		y[i] += f * x[i]
	}
}
