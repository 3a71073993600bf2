#include "run.h"

template int32_t alignment::run<alignment::Pass::gradients>(const Job &);
