/* Methods of org.tenure.Membership1.Manager that are not in manager.c itself. */
#pragma once

#include "agent.h"

int method_get_service(sd_bus_message *m, void *userdata, sd_bus_error *error);
int method_register_service(sd_bus_message *m, void *userdata, sd_bus_error *error);
int method_unregister_service(sd_bus_message *m, void *userdata, sd_bus_error *error);
int method_set_tags(sd_bus_message *m, void *userdata, sd_bus_error *error);
int method_wait_for_revision(sd_bus_message *m, void *userdata, sd_bus_error *error);
