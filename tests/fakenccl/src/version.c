// The only source that differs between versions.
#include "fake.h"

const int version = FAKENCCL_VERSION;
